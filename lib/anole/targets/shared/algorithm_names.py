"""The names of the algorithms that a convolution may have, as configs and features spell them on every target."""

DIRECT, WINOGRAD = "direct", "winograd"
