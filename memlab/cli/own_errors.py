"""An error of the reader's own loop, shown as Python shows errors, without the frames that are not the reader's."""

from traceback import format_exception

from memlab.tracebacks import readers_frames


def shortened(error: BaseException) -> str:
    """The traceback; ``""`` where no frame is the reader's, for then the error is memlab's own."""
    own = readers_frames(error)
    return "".join(format_exception(type(error), error, own, chain=False)) if own else ""
