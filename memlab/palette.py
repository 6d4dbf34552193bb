"""The colours and line styles of every picture, drawn live or by matplotlib."""

from memlab.categories import Category

# Okabe and Ito's colours, which people with any kind of colour vision can tell apart
# (https://jfly.uni-koeln.de/color/). They are eight: wine is Paul Tol's (https://sronpersonalpages.nl/~pault/).
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
GREY = "#999999"

CATEGORY_COLORS = {
    Category.PARAMETER: BLUE,
    Category.BUFFER: YELLOW,
    Category.OPTIMIZER_STATE: GREEN,
    Category.GRADIENT: ORANGE,
    Category.INPUT: SKY,
    Category.HELD: BLACK,
    Category.COMMUNICATION: "#882255",
    Category.ACTIVATION: VERMILION,
    Category.RECOMPUTED: PURPLE,
    Category.TEMPORARY: GREY,
    Category.WORKSPACE: "#555555",
}

INK = "#222222"
QUIET_INK = "#57606A"
LIMIT = "#CF222E"
PHASE_SHADE = "#EEF1F4"
