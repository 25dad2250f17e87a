"""`python -m resources.contrast`: the contrast of every text and ground pair of every theme.

Exits 1 when one is below its bound: 4.5 : 1, or 7 : 1 in the high-contrast themes.
"""

import sys

from resources.tokens import LEAST_CONTRAST, LEAST_CONTRAST_HIGH, colours, contrast, pairs, theme_name


def faults(*, dark: bool, high_contrast: bool) -> list[tuple[str, str, float]]:
    """Pairs of this theme below the bound: text, ground, ratio."""
    table = colours(dark=dark, high_contrast=high_contrast)
    least = LEAST_CONTRAST_HIGH if high_contrast else LEAST_CONTRAST
    ratios = [(text, ground, contrast(table[text], table[ground])) for text, ground in pairs()]
    return [fault for fault in ratios if fault[2] < least]


def main() -> int:
    found = 0
    for dark in (False, True):
        for high in (False, True):
            table = colours(dark=dark, high_contrast=high)
            ratio, text, ground = min((contrast(table[t], table[g]), t, g) for t, g in pairs())
            print(f"{theme_name(dark=dark, high_contrast=high):15} lowest {ratio:.2f} : 1 ({text} on {ground})")
            for text, ground, ratio in faults(dark=dark, high_contrast=high):
                print(f"  too low: {text} on {ground} {ratio:.2f} : 1")
                found += 1
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
