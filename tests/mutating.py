"""Mutants of a source file: what one slip of the hand would make of one line. Standard library only."""

import ast
import dataclasses
import warnings

# operator of the source -> what stands in its place
COMPARISONS = {
    "==": ("!=",),
    "!=": ("==",),
    "<": ("<=", ">="),
    "<=": ("<", ">"),
    ">": (">=", "<="),
    ">=": (">", "<"),
    "is": ("is not",),
    "is not": ("is",),
    "in": ("not in",),
    "not in": ("in",),
}
ARITHMETIC = {"+": ("-",), "-": ("+",), "*": ("/",), "/": ("*",), "//": ("*",), "%": ("//",), "|": ("&",), "&": ("|",)}
BOOLEAN = {"and": ("or",), "or": ("and",)}
CALLED = {
    "min": "max",
    "max": "min",
    "minimum": "maximum",
    "maximum": "minimum",
    "any": "all",
    "all": "any",
    "argmax": "argmin",
    "argmin": "argmax",
    "reduce_any": "reduce_all",
    "reduce_all": "reduce_any",
}


@dataclasses.dataclass(frozen=True)
class Mutant:
    """One change of a source text.

    Attributes:
        line: int, from 1. start, end: int, characters of that line that are replaced by `new`.
        old: str, the whole line, stripped. change: str, what is shown: "< -> <=".
    """

    line: int
    start: int
    end: int
    new: str
    old: str
    change: str

    def applied(self, source: str) -> str:
        """The source text with the change."""
        lines = source.split("\n")
        line = lines[self.line - 1]
        lines[self.line - 1] = line[: self.start] + self.new + line[self.end :]
        return "\n".join(lines)


class _Candidates(ast.NodeVisitor):
    """Collects (first node or place, last one, old, new, change) of everything that can be changed within a line."""

    def __init__(self, source: str):
        self.lines = source.split("\n")
        self.mutants: list[Mutant] = []

    def place(self, line: int, column: int) -> int:
        """Characters before a column, which ast counts in bytes."""
        return len(self.lines[line - 1].encode()[:column].decode())

    def add(self, line: int, start: int, end: int, new: str, change: str) -> None:
        self.mutants.append(Mutant(line, start, end, new, self.lines[line - 1].strip(), change))

    def replace(self, node: ast.expr, new: str, what: str = "") -> None:
        """Another text for a node that stands on one line."""
        if node.lineno != node.end_lineno or node.end_col_offset is None:
            return
        start, end = self.place(node.lineno, node.col_offset), self.place(node.lineno, node.end_col_offset)
        old = self.lines[node.lineno - 1][start:end]
        self.add(node.lineno, start, end, new.replace("\0", old), what or f"{old} -> {new}")

    def operator(self, left: ast.expr, right: ast.expr, table: dict[str, tuple[str, ...]]) -> None:
        """Other operators for the one that stands between two nodes."""
        if left.end_lineno != right.lineno or left.end_col_offset is None:
            return  # which a line break parts
        line = right.lineno
        start, end = self.place(line, left.end_col_offset), self.place(line, right.col_offset)
        between = self.lines[line - 1][start:end]
        old = between.strip(" ()")
        if old in table:
            at = start + between.index(old)
            for new in table[old]:
                self.add(line, at, at + len(old), new, f"{old} -> {new}")

    def visit_Compare(self, node: ast.Compare) -> None:
        for left, right in zip([node.left, *node.comparators], node.comparators):
            self.operator(left, right, COMPARISONS)
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        for left, right in zip(node.values, node.values[1:]):
            self.operator(left, right, BOOLEAN)
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        text = any(isinstance(side, ast.JoinedStr) for side in (node.left, node.right))
        if not text:
            self.operator(node.left, node.right, ARITHMETIC)
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, ast.Not | ast.USub | ast.Invert) and node.lineno == node.operand.lineno:
            start = self.place(node.lineno, node.col_offset)
            end = self.place(node.lineno, node.operand.col_offset)
            old = self.lines[node.lineno - 1][start:end].strip()
            if old in ("not", "-", "~"):  # no parenthesis between
                self.add(node.lineno, start, end, "", f"{old} dropped")
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, bool):
            self.replace(node, str(not node.value))
        elif isinstance(node.value, int):
            self.replace(node, str(node.value + 1))
            if node.value > 0:
                self.replace(node, str(node.value - 1))

    def visit_Call(self, node: ast.Call) -> None:
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if name in CALLED and node.func.lineno == node.func.end_lineno:
            end = self.place(node.lineno, node.func.end_col_offset or 0)
            if self.lines[node.func.lineno - 1][end - len(name) : end] == name:
                self.add(node.func.lineno, end - len(name), end, CALLED[name], f"{name} -> {CALLED[name]}")
        self.generic_visit(node)

    def visit_If(self, node: ast.If | ast.While | ast.IfExp) -> None:
        if isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            return  # imports for annotations
        if not isinstance(node.test, ast.UnaryOp | ast.Compare | ast.BoolOp):
            self.replace(node.test, "not (\0)", "condition negated")
        self.generic_visit(node)

    visit_While = visit_IfExp = visit_If

    def visit_Return(self, node: ast.Return) -> None:
        if node.value is not None and not isinstance(node.value, ast.Constant):
            self.replace(node.value, "None", "returned value dropped")
        self.generic_visit(node)

    # texts of errors are tested as texts; what decorates, annotates or is formatted is no behaviour of its own
    def visit_Raise(self, node: ast.Raise) -> None:
        pass

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        pass

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        for child in (*node.args.defaults, *filter(None, node.args.kw_defaults), *node.body):
            self.visit(child)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        for child in node.body:
            self.visit(child)


def mutants(source: str) -> list[Mutant]:
    """Every mutant of a source text, in the order of the lines; a few may not compile (`compiles`)."""
    found = _Candidates(source)
    found.visit(ast.parse(source))
    return sorted(found.mutants, key=lambda mutant: (mutant.line, mutant.start, mutant.new))


def compiles(source: str) -> bool:
    """Whether a source text is Python, whatever it warns of."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SyntaxWarning)
        try:
            compile(source, "mutant", "exec", dont_inherit=True)
        except (SyntaxError, ValueError):
            return False
    return True
