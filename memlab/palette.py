"""The colours and line styles of every picture, drawn live or by matplotlib."""

from memlab.categories import Category

# Okabe and Ito's colours, which people with any kind of colour vision can tell apart
# (https://jfly.uni-koeln.de/color/). They are eight: WINE is Paul Tol's (https://sronpersonalpages.nl/~pault/).
BLACK, ORANGE, SKY, GREEN, YELLOW, BLUE, VERMILION, PURPLE = (
    "#000000",
    "#E69F00",
    "#56B4E9",
    "#009E73",
    "#F0E442",
    "#0072B2",
    "#D55E00",
    "#CC79A7",
)
GREY, WINE = "#999999", "#882255"

CATEGORY_COLORS = {
    Category.PARAMETER: BLUE,
    Category.BUFFER: YELLOW,
    Category.OPTIMIZER_STATE: GREEN,
    Category.GRADIENT: ORANGE,
    Category.INPUT: SKY,
    Category.HELD: BLACK,
    Category.COMMUNICATION: WINE,
    Category.ACTIVATION: VERMILION,
    Category.RECOMPUTED: PURPLE,
    Category.TEMPORARY: GREY,
    Category.WORKSPACE: "#555555",
}

INK = "#222222"
QUIET_INK = "#57606A"
LIMIT = "#CF222E"
PHASE_SHADE = "#EEF1F4"

# The panel's own colours, in a light notebook and in a dark one. Every text has a contrast of at least 4.5 with the
# ground and with the shade. Categories that a dark ground would swallow are lighter there.
LIGHT = {
    "ink": INK,
    "quiet": QUIET_INK,
    "limit": LIMIT,
    "good": "#116329",
    "link": "#0550AE",
    "ground": "#FFFFFF",
    "shade": PHASE_SHADE,
    "box": "#F6F8FA",
    "floor": "#AFB8C1",
    "ghost": "#6E7781",
    "line": BLUE,
    "mark": "#FFE69A",
} | {category.name.lower(): color for category, color in CATEGORY_COLORS.items()}
DARK = LIGHT | {
    "ink": "#F0F3F6",
    "quiet": "#B1BAC4",
    "limit": "#FF7B72",
    "good": "#56D364",
    "link": "#79B8FF",
    "ground": "#111111",
    "shade": "#20252B",
    "box": "#20252B",
    "floor": "#57606A",
    "ghost": "#9EA7B3",
    "line": "#3D94D1",
    "mark": "#5C4A00",
    Category.HELD.name.lower(): "#FFFFFF",
    Category.COMMUNICATION.name.lower(): "#B0457B",
    Category.WORKSPACE.name.lower(): "#D0D0D0",
}
