"""Changes in other people's Python: there while somebody is inside, for the threads that asked, and gone afterwards."""

import threading
import types

import pytest

from memlab.patching import Patches, where


class Owner:
    def kept(self):
        return "real"

    @staticmethod
    def static():
        return "real"


class Heir(Owner):
    pass


def change(owner, name="kept", answer="changed"):
    return Patches(lambda: [(owner, name, lambda *args: answer)])


def test_a_change_is_there_inside_and_gone_afterwards():
    before = Owner.kept
    with change(Owner):
        assert Owner().kept() == "changed"
    assert Owner.kept is before


def test_a_static_method_is_one_afterwards():
    before = vars(Owner)["static"]
    with change(Owner, "static"):
        pass
    assert vars(Owner)["static"] is before
    assert Owner.static() == "real"


def test_what_was_inherited_is_inherited_afterwards():
    with change(Heir):
        assert Heir().kept() == "changed"
    assert "kept" not in vars(Heir)


def test_what_was_not_there_is_not_there_afterwards():
    module = types.ModuleType("empty")
    with change(module, "new"):
        assert module.new() == "changed"
    assert not hasattr(module, "new")


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_an_error_takes_the_change_away(error):
    before = Owner.kept
    with pytest.raises(error), change(Owner):
        raise error
    assert Owner.kept is before


def test_the_last_one_to_leave_takes_the_change_away():
    patches, before = change(Owner), Owner.kept
    with patches:
        with patches:
            pass
        assert Owner().kept() == "changed"
    assert Owner.kept is before


def test_the_changes_are_worked_out_once_for_all_who_are_inside():
    times = []
    patches = Patches(lambda: times.append(1) or [])
    with patches, patches:
        assert len(times) == 1
    with patches:
        assert len(times) == 2


def test_two_threads_that_leave_in_the_order_in_which_they_came():
    patches, before = change(Owner), Owner.kept
    came, may_leave = threading.Event(), threading.Event()

    def first():
        with patches:
            came.set()
            may_leave.wait()

    thread = threading.Thread(target=first)
    thread.start()
    came.wait()
    with patches:
        may_leave.set()
        thread.join()
        assert Owner().kept() == "changed"
    assert Owner.kept is before


def test_one_name_that_is_changed_twice_is_as_it_was_first():
    before = Owner.kept
    with Patches(lambda: [(Owner, "kept", lambda self: "first"), (Owner, "kept", lambda self: "second")]):
        assert Owner().kept() == "second"
    assert Owner.kept is before


def test_changes_that_fail_half_way_leave_nothing_behind():
    def changes():
        yield Owner, "kept", lambda self: "changed"
        raise AttributeError("no such name")

    patches, before = Patches(changes), Owner.kept
    for _ in range(2):  # the second is no nested one
        with pytest.raises(AttributeError), patches:
            pass
        assert Owner.kept is before


def test_an_answer_is_given_where_it_is_wanted():
    wanted = threading.local()
    asked = where(lambda: hasattr(wanted, "here"), lambda x: ("answer", x), lambda x: ("real", x))
    wanted.here, elsewhere = True, []
    thread = threading.Thread(target=lambda: elsewhere.append(asked(1)))
    thread.start()
    thread.join()
    assert asked(x=1) == ("answer", 1)
    assert elsewhere == [("real", 1)]


def test_a_changed_function_says_that_it_is_the_real_one():
    def real():
        """Do nothing."""

    asked = where(lambda: True, lambda: None, real)
    assert (asked.__name__, asked.__doc__) == ("real", "Do nothing.")
