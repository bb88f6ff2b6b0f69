"""The options of vocabularies and records, each once. No TensorFlow.

`train_tokenizer` and `write_records` take the fields as keyword arguments (`kerasbert.options.configured`), `kerasbert vocab` and
`kerasbert data` as options (`cli.options`).
"""

import dataclasses
import os

from kerasbert.errors import InputError, unknown
from kerasbert.options import check_ranges, option

RUNNERS = ("local", "beam")
SEGMENTER = "a lexicon file (one a line), MODULE:FUNCTION or a registered segmenter"


@dataclasses.dataclass(frozen=True, kw_only=True)
class VocabularyConfig:
    """What is learned from text, and where it is kept."""

    kind: str = option("wordpiece", "wordpiece, bpe, word_bpe, unigram, regex or word_characters")
    size: int = option(30000, "pieces at most", least=(1, 10_000_000))
    sentinels: int = option(
        0,
        "special tokens beside them, for span corruption (T5: 100)",
        python="They stand for what is left out of a text, <extra_id_0> last",
    )
    lowercase: bool | None = option(
        None, "drop case and accents; by default wordpiece does, bpe and unigram keep them", flag=False
    )
    layout: str | None = option(
        None,
        "of the special tokens: of wordpiece bert ([CLS] text [SEP], the default) or mpnet (<s> text </s>), of unigram albert "
        "([CLS] text [SEP], the default) or xlnet (text <sep> <cls>)",
    )
    text_field: str = option(
        "text", "column of the text in tables", python='Or a field; of several ("en,fr") each is taken'
    )
    encoding: str | None = option(None, "of the files, where they are not UTF-8 and have no byte order mark")
    out: str | os.PathLike | None = option(None, "a directory to save it in, or None to leave it in memory", flag=False)
    overwrite: bool = option(False, "replace what `out` holds")

    def __post_init__(self) -> None:
        check_ranges(self)


@dataclasses.dataclass(frozen=True, kw_only=True)
class RecordsConfig:
    """How text becomes records, and who writes them."""

    length: int = option(128, "tokens in an example", python="S, special tokens included")
    packing: str | None = option(
        None,
        "sentence_pairs or pairs (BERT; the default), sentence_order_pairs or order (ALBERT), structbert_pairs or place "
        "(StructBERT); sentences, full or doc (RoBERTa's SENTENCE-PAIR, FULL-SENTENCES, DOC-SENTENCES); best_fit or "
        "packed (pieces that do not see each other); stream (rows that follow one another; the default of tokenizers "
        "without [CLS]); translations (XLM)",
        python="Of two names for one packing, records say the shorter; translations are of two `text_field`s",
    )
    seed: int = option(0, "of the packing", least=(0, 2**32 - 1))
    shards: int | None = option(None, "number of files; by default one for every 64 MB of text", least=(1, 100_000))
    dupe_factor: int = option(
        1, "how often each document is packed", least=1, python="Each time with other pairs (BERT's option; pairs only)"
    )
    text_field: str = option(
        "text",
        "column of the text; of translations two, such as en,fr",
        python="A column or field in jsonl, json, tsv, csv and parquet",
    )
    encoding: str | None = option(None, "of the files, where they are not UTF-8 and have no byte order mark")
    smoothing: float = option(
        0.7,
        "exponent on a language's share of the tokens",
        python="1 leaves the shares as they are, 0 makes them equal, multilingual BERT took 0.7. The corpus keeps its size",
    )
    words: str | os.PathLike | None = option(
        None,
        f"what finds words or phrases in the text, to be masked whole: {SEGMENTER}",
        metavar="SOURCE",
        python="See `data.joins.find`",
    )
    entities: str | os.PathLike | None = option(
        None,
        f"what finds named entities in the text, to be masked whole: {SEGMENTER}",
        metavar="SOURCE",
        python="See `data.joins.find`",
    )
    sentence_borders: bool = option(
        False,
        "rows hold where sentences begin (BART's sentence permutation)",
        python="Lines are split into sentences",
    )
    language_ids: bool = option(
        False,
        "rows hold the numbers of their languages (XLM)",
        python="They are those of `tokenizer.languages`; where it has none, or lacks some, these follow in alphabetical "
        "order. The records' own tokenizer has the table. Translations always hold them",
    )
    runner: str = option(
        "local", "local, or beam (Apache Beam)", python="local is this machine with one shard in memory at a time"
    )
    beam_options: str = option("", 'Beam\'s own: "--runner=DataflowRunner ..."', metavar="OPTIONS")
    allow_loss: bool = option(
        False,
        "write pairs also where less than nine in ten tokens are kept, or more than nine in ten answers are the same",
    )
    overwrite: bool = option(False, "replace records of other inputs")
    processes: int | None = option(
        None,
        "on this machine: by default one for every available core, fewer for a small corpus. The bytes are the same; each "
        "holds a shard in memory",
        metavar="N",
        python="Fewer where each would have less than 16 MB of text",
    )

    def __post_init__(self) -> None:
        if self.runner not in RUNNERS:
            raise unknown("runner", self.runner, RUNNERS, "kerasbert data --help")
        if self.runner == "beam" and self.processes is not None:
            raise InputError("processes are of --runner local; Beam's --beam-options say how many workers it has")
        check_ranges(self)
        if not 0 <= self.smoothing <= 1:
            raise InputError(f"smoothing is {self.smoothing}, expected 0 (languages alike) to 1 (as they are)")
