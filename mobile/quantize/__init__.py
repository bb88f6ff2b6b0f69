"""Quantization: what of a float .tflite becomes int8, for `kerasbert.mobile.compress`; `aware` trains a model for it.

Imports nothing heavy.
"""

from kerasbert import lazy
from kerasbert.storage.json_view import Json

_HOMES = {"Aware": "aware_training", "aware": "aware_training", "simulated": "aware_training"}
__getattr__, __dir__, __all__ = lazy.public(__name__, _HOMES)


def show(report: Json) -> None:
    """Print what `compress` reports about what stayed float, and the table of a budget."""
    if "float_operators" in report:
        counts = ", ".join(f"{name} {count}" for name, count in report["float_operators"].items())
        print(f"operators in float: {counts or 'none'}")
    if report.get("dynamic"):
        print(f"int8 matrices with float activations: {', '.join(report['dynamic'])}")
    if "budget" in report:
        print("     drop      MB  difference  in float beyond that")
        for row in report["budget"]:
            mark = "->" if row["chosen"] else "  "
            print(
                f"{mark} {row['drop']:6.2f} {row['bytes'] / 1e6:7.2f}  {row['mean_difference']:10.5f}  {', '.join(row['float'])}"
            )
