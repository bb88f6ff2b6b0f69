"""What a kind answers: its rows, outputs, answers and their json, the same in Python, in the graph and on the device."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

import kerasbert as kb
from kerasbert.answers.base import Kind, Parts, Text
from kerasbert.errors import InputError
from kerasbert.export import graphs, saved_model, signatures
from kerasbert.inputs import Row, used, with_makers
from kerasbert.storage.json_view import Json
from kerasbert.tasks import predict
from kerasbert.testing.case import LENGTH, NEAR, Case
from kerasbert.text.graph import graph_tokenizer


def check_rows(case: Case) -> None:
    """`rows` packs every input into rows that the network and the kind's own inputs take; outputs have the declared shape."""
    kind = case.kind.answers
    with case.blamed("packing the rows"):
        parts = [text if isinstance(text, tuple) else (text,) for text in case.texts]
        packed = [kind.rows(case.model.tokenizer, each, LENGTH) for each in parts]
    long = _long(case)
    for told, rows in [*zip(parts, packed), *([("a long text", long)] if long else [])]:
        assert rows, f"{case.phone}.rows gives no row of {told!r:.60}, expected one at least"
        for row in rows:
            _check_row(case, row)
    with case.blamed("telling what is to be known of the rows"):
        lines = kind.told([row for rows in packed for row in rows])
    assert all(isinstance(line, str) for line in lines), f"{case.phone}.told gives no lines: {lines!r:.80}"
    if kind.reader == "answer":
        _check_outputs(case)


def _long(case: Case) -> list[Row]:
    """The rows of an input that is longer than a row; none where the kind refuses such inputs."""
    kind, long = case.kind.answers, "old stone " * (2 * LENGTH)
    with case.blamed("packing a long text"):
        try:
            example = kind.example((long, long) if case.model.task.pair else long)
            return kind.rows(case.model.tokenizer, example if isinstance(example, tuple) else (example,), LENGTH)
        except InputError:
            return []


def _check_row(case: Case, row: Row) -> None:
    assert row.length <= LENGTH, f"{case.phone}.rows gives a row of {row.length} tokens, expected at most {LENGTH}"
    own = case.kind.answers.inputs
    missing = [each.name for each in own if each.name not in row.values]
    assert not missing, f"{case.phone}.rows fills no {', '.join(missing)}, which {case.phone}.inputs declares"
    for each in own:
        places = np.ravel(row.values[each.name]) if each.axes == "BP" else np.zeros(0)
        assert ((places >= 0) & (places < row.length)).all(), (
            f"{case.phone}.rows: {each.name} is {places.tolist()} of a row of {row.length} tokens"
        )


def _check_outputs(case: Case) -> None:
    """An output is [C], or [S, C] of the tokens; C is what `width` says."""
    kind, labels = case.kind.answers, list(case.model.labels or ())
    packed, _, given = case.answered
    with case.blamed("asking how wide an output is"):
        width = kind.width(labels)
    for row, values in zip(packed.rows, given):
        shape = np.atleast_1d(values).shape
        wanted: tuple[int, ...] = (row.length,) * kind.per_token + (width or shape[-1],)
        assert shape == wanted, (
            f"an output has the shape {shape}, expected {wanted}: {case.phone}.per_token is {kind.per_token}, {case.phone}.width "
            f"says {width} for {len(labels)} labels, and {case.training}.heads gives {shape[-1]}"
        )
        assert np.isfinite(values).all(), f"{case.phone}.probabilities gives numbers that are not finite"


def check_answers(case: Case, folder: Path) -> None:
    """Answers have json that can be written and read back, whatever inputs stand beside, and after saving and loading."""
    kind, texts = case.kind.answers, case.texts
    answers = case.said
    with case.blamed("making json of an answer"):
        said = [answer.to_json() for answer in answers]
    for answer, content in zip(answers, said):
        _check_json(case, content, f"{type(answer).__name__}.to_json")
    absent = [name for name in kind.columns if name not in said[0]]
    assert not absent, (
        f"{case.phone}.columns names {', '.join(absent)}, which {type(answers[0]).__name__}.to_json lacks: it has "
        f"{', '.join(said[0])}"
    )
    with case.blamed("answering one input by itself"):
        alone = kb.predict(case.model, texts[-1:], length=LENGTH)[0].to_json()
    found = saved_model.difference(said[-1], alone)
    assert not found, f"{case.phone}: an input by itself has another answer than among others: {found}"
    _check_lines(case, said)
    _check_ranking(case, answers)
    if kind.reader == "answer":
        _check_agreement(case)
    with case.blamed("saving and loading the model"):
        kb.save(case.model, folder, overwrite=True)
        again = [answer.to_json() for answer in kb.predict(kb.load(folder), texts, length=LENGTH)]
    found = saved_model.difference(said, again)
    assert not found, f"{case.training}: a model that was saved and loaded answers otherwise: {found}"


def _check_json(case: Case, content: object, who: str) -> None:
    try:
        again = json.loads(json.dumps(content, allow_nan=False))
    except (TypeError, ValueError) as error:
        raise AssertionError(f"{who} is no json: {error}. Of numpy's numbers take float, int, bool") from error
    assert isinstance(content, dict), f"{who} gives a {type(content).__name__}, expected a dict"
    assert again == content, f"{who} is another after json: {content!r:.100}, read back as {again!r:.100}"


def _check_lines(case: Case, said: Sequence[Json]) -> None:
    kind = case.kind.answers
    with case.blamed("printing an answer"):
        lines = [text(each) for each in said for text in (kind.text, lambda each: kind.line(each, "the text"))]
    wrong = next((line for line in lines if not isinstance(line, str) or "\n" in line), None)
    assert wrong is None, f"{case.phone}.text and line give a line of text, received {wrong!r:.60}"


def _check_ranking(case: Case, answers: Sequence[object]) -> None:
    """`limited`, where a kind ranks something: inherited, it may not fit the answers."""
    kind = case.kind.answers
    for top, threshold in ((1, None), (None, 0.5)):
        if type(kind).limited is Kind.limited:
            return
        try:
            kind.ranking(top, threshold)
        except InputError:
            continue
        with case.blamed(f"telling the best of an answer (top {top}, threshold {threshold})"):
            contents = [kind.limited(answer, top, threshold).to_json() for answer in answers]
        for content in contents:
            _check_json(case, content, f"{case.phone}.limited")


def _check_agreement(case: Case) -> None:
    """What `compress` judges by: outputs agree with themselves."""
    kind = case.kind.answers
    packed, _, given = case.answered
    for ties in (False, True):
        with case.blamed("comparing outputs with themselves"):
            signal = np.asarray(kind.signal(given, packed.owners, packed.rows))
            share = kind.agreement(given, given, packed.owners, packed.rows, ties=ties)
            differences = np.asarray(kind.differences(given, given))
        assert signal.ndim == 2, f"{case.phone}.signal has the shape {signal.shape}, expected [n, C]"
        assert share > 1 - NEAR, f"{case.phone}.agreement of outputs with themselves is {share:.4f}, expected 1"
        assert not differences.any(), f"{case.phone}.differences of outputs with themselves is not 0"


# What is exported


def check_device(case: Case) -> None:
    """`device` gives what `probabilities` gives, float32; a file can fill what the kind reads."""
    kind = case.kind
    if kind.answers.reader != "answer":
        return
    packed, _, given = case.answered
    for each in kind.answers.inputs:
        with case.blamed("sizing the inputs of a .tflite"):
            wanted = each.shape(LENGTH)[1:]
        sizes = {np.shape(row.values[each.name]) for row in packed.rows} if each.own else {wanted}
        places = max((size for size in sizes if size != wanted), default=wanted)
        assert sizes == {wanted}, (
            f"{case.phone}.rows fills {each.name} with {places[-1]} places, and in a "
            f".tflite the axes {each.axes} have room for {wanted[-1]} a row: give the Input places={places[-1]}, or keep the "
            "kind in Python (exported=False)"
        )
    batch = {name: tf.convert_to_tensor(value) for name, value in packed.arrays(range(len(given)), LENGTH).items()}
    with case.blamed("computing what a .tflite gives"):
        values = kind.device(case.model(batch), batch)
    shape, wanted = tuple(values.shape), (len(given), *[*batch["token_ids"].shape[1:]] * kind.per_token)
    assert shape[:-1] == wanted, (
        f"{case.training}.device gives {shape}, expected {(*wanted, 'C')}: numbers for each {'token' * kind.per_token or 'row'}"
    )
    values = [value[: row.length] if kind.per_token else value for value, row in zip(np.asarray(values), packed.rows)]
    largest = max(float(np.abs(a - np.atleast_1d(b)).max(initial=0)) for a, b in zip(values, given))
    assert largest <= case.task.rounding(NEAR), (
        f"{case.training}.device and {case.phone}.probabilities make different numbers of the same outputs (largest difference "
        f"{largest:.2g}): a phone would decode others than Python"
    )


def check_served(case: Case) -> None:
    """`served` answers texts in the graph as `kb.predict` does, also those that an exported SavedModel is compared on."""
    kind, names = case.kind, graphs.text_names(case.model)
    with case.blamed("making the texts that a SavedModel is compared on"):
        probes = kind.probes(saved_model.PROBES, len(names))
    with case.blamed(f"packing what {case.training}.probes gives (override it where not every text is an input)"):
        for probe in probes:
            kind.answers.rows(case.model.tokenizer, probe if isinstance(probe, tuple) else (probe,), LENGTH)
    graph, labels = graph_tokenizer(case.model.tokenizer), tuple(case.model.labels or ())
    for texts in (case.texts, probes):
        with case.blamed("serving texts in the graph"):
            served = kind.served(
                lambda packed: _run(case, packed), graph, signatures.given(kind, names, texts), LENGTH, labels
            )
            served = {name: np.asarray(value) for name, value in served.items()}
            answered = kind.unserved(served, list(labels))
        check_same(case, texts, served, answered)


def check_same(
    case: Case, texts: Sequence[object], served: dict[str, np.ndarray], answered: list[Json] | None, who: str = ""
) -> None:
    """What a graph answered is what `kb.predict` answers.

    Args:
        served: outputs by name. answered: of `unserved`. who: str, what gave them; by default `served`.
    """
    kind, labels, who = case.kind.answers, list(case.model.labels or ()), who or f"{case.training}.served"
    answers = case.said if texts is case.texts else kb.predict(case.model, texts, length=LENGTH)
    said = [answer.to_json() for answer in answers]
    if answered is None:
        given = ", ".join(sorted(served.keys() - {"truncated"}))
        assert kind.output in served, (
            f"{case.training}.exported gives {given}, and not {kind.output!r}, which {case.phone}.output names"
        )
        count = len(served[kind.output])
        assert count == len(texts), (
            f"{who} gives {count} outputs of {len(texts)} texts: one a row, where texts have several rows"
        )
        with case.blamed(f"decoding what {who} gives"):
            answered = list(map(_decoded(case, labels), texts, served[kind.output]))
    found = saved_model.difference(said, [_as_long(one, other) for one, other in zip(answered, said, strict=True)])
    assert not found, f"{who} answers otherwise than kb.predict: {found}"


def _decoded(case: Case, labels: Sequence[str]) -> Callable[[Any, np.ndarray], Json]:
    kind, tokenizer = case.kind.answers, case.model.tokenizer

    def decode(text: Text | Parts, values: np.ndarray) -> Json:
        parts: Parts = text if isinstance(text, tuple) else (text,)
        rows = kind.rows(tokenizer, parts, LENGTH)
        values = values[: rows[0].length] if kind.per_token else np.atleast_1d(values)
        return kind.decode(parts, rows, [values], labels).to_json()

    return decode


def _as_long(answered: Json, said: Json) -> Json:
    """Lists that the graph filled up for longer ones beside them, as long as `kb.predict` gives them."""
    return {
        name: value[: len(said.get(name, value))] if isinstance(value, list) else value
        for name, value in answered.items()
    }


def _run(case: Case, packed: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    """The exported outputs of rows that `served` packed; refused where it leaves out what the kind reads."""
    packed.pop("owners", None)
    own = [each.name for each in case.kind.answers.inputs if each.name not in packed and each.graph is None]
    assert not own, (
        f"{case.training}.served packs no {', '.join(own)}, which {case.phone}.inputs declares and {case.phone}.rows fills: a "
        "SavedModel packs its texts in the graph, so give the Input a graph, or override served (as tasks/tokens.py does)"
    )
    reads = used(predict.declared(case.model), predict.settings_of(case.model))
    count = tf.shape(packed["token_ids"])[0]
    packed = signatures.trimmed(packed)
    numbers = tf.range(tf.shape(packed["token_ids"])[0])
    packed = {each.name: numbers for each in reads if each.axes == "B"} | packed
    batch = with_makers(reads, packed, case.model.tokenizer)
    return {name: value[:count] for name, value in graphs.answers(case.model, batch).items()}
