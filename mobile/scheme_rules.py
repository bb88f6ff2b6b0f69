"""What `SCHEMES.add` asks of a quantization scheme: its author sees a mistake where he adds it. Nothing heavy is imported."""

from kerasbert.errors import InputError, check_known
from .quantize import schemes

_FORMS = ("float32", "float16", "int8")
KNOWN = {  # field of a Scheme -> its values
    "weights": _FORMS,
    "tables": _FORMS,
    "activations": ("float32", "dynamic", "static", "int8"),
    "runtimes": (schemes.LITERT, schemes.TFLITE),
}


def check(name: str, scheme: object) -> None:
    """The rules of SCHEMES: an InputError for no Scheme, or a value that there is not."""
    if not (isinstance(scheme, schemes.Scheme) and callable(scheme.make or check)):
        raise InputError(f"the quantization {name!r} is {scheme!r:.300}, expected a Scheme, its make a function")
    for field, known in KNOWN.items():
        given = getattr(scheme, field)
        for value in (given,) if isinstance(given, str) else given:
            check_known("quantization", name, f"value of {field}", value, known)
    if not 0 <= scheme.agreement <= 1 >= scheme.fidelity:
        raise InputError(f"the quantization {name!r} needs an agreement of 0 to 1 and a fidelity of at most 1")
