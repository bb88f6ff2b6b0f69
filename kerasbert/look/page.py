"""The pictures of `kerasbert look` as parts of a page, each with two sentences that say what one sees."""

import html
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from kerasbert.look.numbers import PATTERNS
from kerasbert.report import html_table
from kerasbert.run_report import pictures
from kerasbert.storage.json_view import JsonMap

GIVEN: dict[str, str] = dict(zip(PATTERNS, ("the token before", "the token behind", "separators", "the token itself")))
SIDE, EDGE = 320, 24  # pixels of a picture of squares, and of the numbers beside it
LINES = 24  # tokens of the sentence over which a head is drawn


def words(about: JsonMap) -> list[str]:
    """The word in its sentences: cosines and map of the first, the middle and the last layer."""
    layers, count = about["layers"], len(about["sentences"])
    listed = "".join(f"<li>{html.escape(each)}</li>" for each in about["sentences"])
    parts = [f"<h2>{html.escape(about['word'])} in {count} sentences</h2>", f"<ol>{listed}</ol>"]
    shown = [layers[i] for i in sorted({0, len(layers) // 2, len(layers) - 1})]
    for layer in shown:
        name = layer_name(layer["layer"])
        cosines = np.array(layer["cosines"])
        points = {str(i + 1): point for i, point in enumerate(layer["map"])}
        drawn = squares(cosines, f"cosines of {about['word']} between {count} sentences, {name}", str, (0, 1))
        plane = named_points(points, f"map of {about['word']} in {count} sentences, {name}")
        parts += [f"<h3>{name[0].upper()}{name[1:]}</h3>", f'<div class="grid">{drawn}{plane}</div>']
        pairs = cosines[np.triu_indices(count, 1)]
        parts.append(
            said(
                "A square is the cosine between the word's vectors in two sentences, dark at 1; here they go from "
                f"{pairs.min():.2f} to {pairs.max():.2f}. A point is the same vector on the first two principal components, "
                f"which hold {layer['share']:.0%} of the variance: numbers that stand together are sentences in which the "
                "model sees the same."
            )
        )
    return parts


def blocks(about: JsonMap) -> list[str]:
    """How far each block moves a token."""
    rows = about["blocks"]
    distance = {"L2 distance": [(row["block"], row["distance"]) for row in rows]}
    angle = {"angle in degrees": [(row["block"], row["angle"]) for row in rows]}
    most, least = (pick(rows, key=lambda row: row["angle"]) for pick in (max, min))
    return [
        "<h2>From layer to layer</h2>",
        f'<div class="grid">{pictures.lines(distance, "block")}{pictures.lines(angle, "block")}</div>',
        said(
            "A point is the mean over the tokens of all sentences of how far a block's output lies from its input (ALBERT, "
            f"figure 2). Block {most['block']} turns them most, by {most['angle']:.0f} degrees, block {least['block']} least, "
            f"by {least['angle']:.0f}."
        ),
    ]


def mix(about: JsonMap) -> list[str]:
    """Which layers a task reads, of one that has learnt that."""
    found = about["mix"]
    if found is None:
        return []
    shares = found["shares"]
    most = max(range(len(shares)), key=shares.__getitem__)
    return [
        "<h2>Layers that the task reads</h2>",
        pictures.lines({"share": list(enumerate(shares))}, "layer, 0 the embeddings"),
        said(
            "A point is the share of a layer in the vectors that the task's head reads, and all make 1 (ELMo: Peters et al., "
            f"2018, equation 1). Most is read of {layer_name(most)}, {shares[most]:.0%}, where even shares are "
            f"{1 / len(shares):.0%}; the sum is multiplied by {found['gamma']:.2f}."
        ),
    ]


def attention(about: JsonMap) -> list[str]:
    """Heads by pattern, their entropy, and the one that is surest of where it reads."""
    found = about["attention"]
    if found is None:
        return [
            "<h2>Attention</h2>",
            said(
                f"{about['family']} has no attention weights of one token to each other of one shape, so there is no such "
                "picture of it. The pictures above need none."
            ),
        ]
    parts = ["<h2>Attention</h2>", '<div class="grid">']
    for name in PATTERNS:
        parts.append(
            _heads(np.array(found["patterns"][name]), f"to {name}" if name != "same word" else "to itself", 1.0)
        )
    entropies = np.array(found["entropy"])
    parts += [_heads(entropies, "entropy in nats", float(entropies.max())), "</div>"]
    name, (layer, head, share) = _strongest(found["patterns"])
    parts.append(
        said(
            "A square is a head, a row a layer, its colour the mean share of weight that its tokens give to the one before, the "
            "one behind, a separator or themselves, and at last its entropy (Clark et al., 2019). The most regular head is "
            f"{head} of layer {layer}, which gives {share:.0%} to {GIVEN[name]}."
        )
    )
    drawn = found["drawn"]
    parts += [f"<h3>Head {drawn['head']} of layer {drawn['layer']}</h3>", _over(drawn)]
    parts.append(
        said(
            "Left reads, right is read; the stronger a line, the more weight. It is the head with the least entropy, "
            f"{drawn['entropy']:.2f} nats on average, where even attention over this sentence has {np.log(drawn['length']):.2f}."
        )
    )
    return parts


def masked(about: JsonMap) -> list[str]:
    """How sure the model is of each token of the sentences."""
    found = about["masked"]
    if found is None:
        none = "The model has no head that fills masks, so it cannot be asked which tokens it expects."
        return [
            "<h2>Tokens that it expects</h2>",
            said(f"{none} A run of pretraining or an imported checkpoint may have one."),
        ]
    tokens = [token for sentence in found["sentences"] for token in sentence]
    sure, unsure = (pick(tokens, key=lambda token: token["log_probability"]) for pick in (max, min))
    lines = "".join(f"<p>{' '.join(map(_sureness, sentence))}</p>" for sentence in found["sentences"])
    return [
        "<h2>Tokens that it expects</h2>",
        lines,
        said(
            "Each token was masked alone; the number behind it is the probability that the model gives it there, and the darker "
            f"it stands the less it was expected. The surest is {sure['piece']} ({np.exp(sure['log_probability']):.2f}), the "
            f"least sure {unsure['piece']} ({np.exp(unsure['log_probability']):.4f}), where {unsure['best']} was expected "
            f"({unsure['best_probability']:.2f}); pseudo-perplexity {found['perplexity']:.2f} (Salazar et al., 2020)."
        ),
    ]


def _sureness(token: JsonMap) -> str:
    """A token, darker the less it was expected, up to 8 nats."""
    shade = min(1.0, -token["log_probability"] / 8) * 0.35
    probability = f"{np.exp(token['log_probability']):.2f}"
    style = f'style="background: rgb(180 60 0 / {shade:.2f})"'
    return f"<span {style}>{html.escape(token['piece'])} <small>{probability}</small></span>"


def table(about: JsonMap) -> list[str]:
    """The token table: near tokens, lengths along the vocabulary, how narrow the cone of its vectors is."""
    found = about["table"]
    if found is None:
        return [
            "<h2>Token table</h2>",
            said(f"{about['family']} has no table of tokens. Its vectors are made otherwise."),
        ]
    near = [[each["piece"], f"{each['cosine']:.3f}"] for each in found["near"]]
    norms = {"mean length": [(i + 1, value) for i, value in enumerate(found["norms"])]}
    white = "" if found["whitened"] is None else f", and {found['whitened']:.3f} once mean and covariance are taken out"
    return [
        "<h2>Token table</h2>",
        html_table(("token", "cosine"), near, f"tokens near {about['word']}"),
        pictures.lines(norms, "tenth of the vocabulary"),
        said(
            f"Above, the tokens whose vectors have the largest cosines to that of {about['word']}; below, how long the vectors "
            "of each tenth of the vocabulary are, in its order, which training's frequencies roughly gave. Two tokens have a "
            f"cosine of {found['anisotropy']:.3f} on average{white}: the nearer to 0, the less do all vectors point one way "
            "(Ethayarajh, 2019; Su et al., 2021)."
        ),
    ]


def surface(about: JsonMap) -> list[str]:
    """The loss around the weights, where it was measured."""
    found = about.get("surface")
    if found is None:
        return []
    at, losses = found["at"], np.array(found["losses"])
    logs = np.log(np.maximum(losses, 1e-6))
    drawn = squares(
        logs,
        "loss around the weights, x across and y down, dark where it is high",
        lambda n: f"{at[n - 1]:g}" if at[n - 1] in (-1, 0, 1) else "",
        (logs.min(), logs.max()),
    )
    middle, centre = len(at) // 2, found["centre"]
    along = {"along x": list(zip(at, losses[middle])), "along y": list(zip(at, losses[:, middle]))}
    way = "Both are random, in each filter as long as the weights, for those that the run began with cannot be read"
    if found["start"]:
        way = f"x leads to the weights that the run began with, at 1, where it is {losses[middle][-1]:.3f}; y is random, as long"
    return [
        "<h2>Loss around the weights</h2>",
        f'<div class="grid">{drawn}{pictures.lines(along, "place")}</div>',
        said(
            f"The loss on {found['rows']} with the encoder's weights moved along two directions; at 0, 0 it is {centre:.3f}, as "
            f"evaluate says. {way} (Hao et al., 2019; Li et al., 2018). The wider the pale basin, the less a change of the "
            "weights matters."
        ),
    ]


def layer_name(number: int) -> str:
    """
    >>> layer_name(0), layer_name(2)
    ('embeddings', 'layer 2')
    """
    return f"layer {number}" if number else "embeddings"


def said(text: str) -> str:
    """What one sees."""
    return f"<p>{html.escape(text)}</p>"


def squares(values: np.ndarray, told: str, name: Callable[[int], str], ends: tuple[float, float]) -> str:
    """A matrix of coloured squares, with the numbers of its rows and columns from 1; `ends` are white and dark."""
    rows, columns = values.shape
    cell = min(28, SIDE // max(columns, 1), SIDE // max(rows, 1))
    parts = [
        f'<text x="{EDGE - 4}" y="{EDGE + cell * (i + 0.5) + 4:.0f}" text-anchor="end">{name(i + 1)}</text>'
        for i in range(rows)
    ]
    parts += [
        f'<text x="{EDGE + cell * (j + 0.5):.0f}" y="{EDGE - 6}" text-anchor="middle">{name(j + 1)}</text>'
        for j in range(columns)
    ]
    low, high = ends
    for (i, j), value in np.ndenumerate(values):
        shade = min(1.0, max(0.0, (value - low) / ((high - low) or 1.0)))
        at = f'x="{EDGE + cell * j}" y="{EDGE + cell * i}" width="{cell - 1}" height="{cell - 1}"'
        parts.append(
            f'<rect {at} fill="{pictures.COLOURS[0]}" fill-opacity="{shade:.2f}" stroke="{pictures.LINE}"></rect>'
        )
    return figure(parts, told, EDGE + cell * columns + 2, EDGE + cell * rows + 2)


def named_points(points: Mapping[str, Sequence[float]], told: str) -> str:
    """Points on a plane by their names; both axes have the same unit."""
    places = np.array(list(points.values()))
    span = float(np.abs(places).max()) or 1.0
    scaled = 100 + 84 * places / span
    parts = [f'<path d="M100 4V196M4 100H196" stroke="{pictures.LINE}"/>']
    for name, (x, y) in zip(points, scaled):
        parts.append(f'<circle cx="{x:.1f}" cy="{200 - y:.1f}" r="3" fill="{pictures.COLOURS[0]}"/>')
        parts.append(f'<text x="{x + 5:.1f}" y="{200 - y + 4:.1f}">{html.escape(name)}</text>')
    return figure(parts, told, 200, 200)


def figure(parts: Sequence[str], told: str, width: int, height: int) -> str:
    """An svg with what it is for who does not see it."""
    size = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    about = f'font-size="11" fill="{pictures.SOFT}" role="img" aria-label="{html.escape(told)}"'
    caption = f"<figcaption>{html.escape(told)}</figcaption>"
    return f'<figure class="picture"><svg {size} {about}>{"".join(parts)}</svg>{caption}</figure>'


def _heads(values: np.ndarray, name: str, most: float) -> str:
    told = f"{name}: {values.min():.2f} to {values.max():.2f}, layers by heads"
    return squares(values, told, str, (0.0, most))


def _strongest(shares: JsonMap) -> tuple[str, tuple[int, int, float]]:
    name = max(shares, key=lambda each: np.max(shares[each]))
    values = np.array(shares[name])
    layer, head = np.unravel_index(values.argmax(), values.shape)
    return name, (int(layer) + 1, int(head) + 1, float(values.max()))


def _over(drawn: JsonMap) -> str:
    """A head over a sentence: lines from the tokens that read to those that are read."""
    pieces, weights = drawn["pieces"][:LINES], np.array(drawn["weights"])[:LINES, :LINES]
    parts = []
    for i, piece in enumerate(pieces):
        shown = html.escape(piece if len(piece) <= 14 else piece[:13] + "\u2026")
        y = 18 * i + 18
        parts.append(f'<text x="104" y="{y}" text-anchor="end">{shown}</text><text x="216" y="{y}">{shown}</text>')
    for (i, j), weight in np.ndenumerate(weights):
        if weight >= 0.02:
            line = f'd="M110 {18 * i + 14}L210 {18 * j + 14}" stroke="{pictures.COLOURS[0]}"'
            parts.append(f'<path {line} stroke-width="2" stroke-opacity="{min(1.0, float(weight)):.2f}" fill="none"/>')
    told = f"head {drawn['head']} of layer {drawn['layer']} over the first sentence"
    return figure(parts, told, 320, 18 * len(pieces) + 12)
