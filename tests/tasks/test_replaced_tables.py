"""Which table `--overwrite` replaces: what the same command would write, and nothing of a user's. No TensorFlow."""

import pytest

from kerasbert import answers
from kerasbert.errors import InputError
from kerasbert.storage import places
from kerasbert.tasks import answer_tables


@pytest.mark.parametrize("ending", ["csv", "tsv", "jsonl", "conll", "html", ".json"])
@pytest.mark.parametrize("fields", [kind.columns for kind in answers.KINDS.values()] + [("similarity",)], ids="-".join)
def test_what_every_kind_of_task_answers_is_replaced_by_the_same_command(tmp_path, ending, fields):
    """Values of a regression and sets of labels were kept, as no table of answers."""
    path, columns = tmp_path / "a", ["id", "text"]
    sheet = answer_tables.Sheet(ending, columns, fields, text="text")
    answer = ["x"] * len(fields) if ending not in ("conll", "html") else [["a"], ["O"], []]
    path.write_text("".join(sheet.lines(iter([({"id": "1", "text": "a"}, answer)]))))
    places.check_file(path, True, "table")
    answer_tables.check_replaced(path, sheet)
    for mine in (
        "id,text,label\n",
        "id\ttext\tlabel\n",
        '{"id": 1}\n',
        "[1]\n",
        "<html></html>",
        "[" * 100_000,
        "{",
        "\x00",
    ):
        path.write_text(mine)
        with pytest.raises(InputError, match="it is kept"):
            answer_tables.check_replaced(path, sheet)
