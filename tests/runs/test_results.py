"""A run's record and predictions survive the disk, and nothing broken is taken for a result."""

import copy
import json
import math
import os
import struct
import zipfile

import numpy as np
import pytest

from coop_cmp.errors import UserError
from coop_cmp.runs import read_outcomes, read_predictions, read_results
from coop_cmp.runs.identity import Identity
from coop_cmp.runs.outputs import Outcomes, image_numbers, write_outcomes, write_predictions
from coop_cmp.runs.records import FIELDS, write_results
from tests.made_runs import record_of

SETTINGS = {
    "TRAINER.NAME": "CoOp_CMP",
    "TRAINER.CMP.LAMBDA": 0.01,
    "DATASET.NAME": "Digits",
    "MODEL.BACKBONE.NAME": "GlyphCLIP",
    "TEST.SPLIT": "test",
    "SEED": 1,
}
RECORD = record_of(
    Identity(SETTINGS), metrics={"auroc": None}, notes=["a note with an ü"], checkpoint="1"
)


def stored(path, change):
    """Write a record, changed by hand as no function of ours would, and return its path."""
    write_results(path, RECORD)
    record = json.loads(path.read_text())
    change(record)
    path.write_text(json.dumps(record))
    return path


def test_a_record_comes_back_as_it_was_with_its_schema(tmp_path):
    write_results(tmp_path / "results.json", RECORD)
    read = read_results(tmp_path / "results.json")
    assert len(read.pop("checksum")) == 32
    assert read == {"schema": 2, **RECORD}
    assert [p.name for p in tmp_path.iterdir()] == ["results.json"]


@pytest.mark.parametrize("field", FIELDS)
def test_a_missing_field_is_named_with_the_path(tmp_path, field):
    path = stored(tmp_path / "r.json", lambda record: record.pop(field))
    with pytest.raises(UserError, match=rf"r\.json: the field '{field}' is missing"):
        read_results(path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda r: r.update(schema=3), "schema 3 is unknown"),
        (lambda r: r["metrics"].pop("ece"), r"metrics\.ece is missing"),
        (lambda r: r["metrics"].update(nll=10**400), "too large"),
        (lambda r: r["metrics"].update(ece=math.nan), r"metrics\.ece is nan"),
        (lambda r: r["metrics"].update(ece=None), r"metrics\.ece is not a number"),
        (lambda r: r["metrics"].update(accuracy=81.2), r"accuracy is 81\.2, not from 0 to 1"),
        (lambda r: r["settings"].pop("SEED"), "the setting SEED is missing"),
        (lambda r: r["settings"].update(SEED=2), "were changed by hand"),
        (lambda r: r.update(training={"dataset": "Digits"}), "identity is incomplete"),
        (lambda r: r.update(commit=True), "'commit' has the wrong type: True"),
        (lambda r: r.update(chcksum="0"), "the field 'chcksum' is unknown"),
        (lambda r: r.update(checksum="0"), "its numbers are not those that were written"),
    ],
)
def test_a_wrong_record_is_refused_with_the_path(tmp_path, change, message):
    path = stored(tmp_path / "results.json", change)
    with pytest.raises(UserError, match=rf"{path}: .*{message}"):
        read_results(path)


def test_a_missing_file_is_a_user_error(tmp_path):
    with pytest.raises(UserError, match="cannot be read"):
        read_results(tmp_path / "results.json")
    with pytest.raises(UserError, match="cannot be read"):
        read_predictions(tmp_path / "predictions.npz")


def test_a_wrong_record_is_not_written(tmp_path):
    record = copy.deepcopy(RECORD)
    record["metrics"]["ece"] = math.nan
    with pytest.raises(UserError, match=r"metrics\.ece is nan"):
        write_results(tmp_path / "results.json", record)
    assert list(tmp_path.iterdir()) == []


def test_predictions_come_back_as_float32_with_their_names(tmp_path):
    logits = np.random.default_rng(0).normal(size=(5, 3))
    write_predictions(tmp_path / "p.npz", logits, [0, 1, 2, 0, 1], ["cat", "dog", "Möwe"])
    read = read_predictions(tmp_path / "p.npz")
    assert read.logits.dtype == np.float32
    assert np.array_equal(read.logits, logits.astype(np.float32))
    assert read.labels.dtype == np.int64
    assert read.labels.tolist() == [0, 1, 2, 0, 1]
    assert read.classnames == ["cat", "dog", "Möwe"]


def test_outcomes_come_back_and_nothing_else_is_taken_for_them(tmp_path):
    names = image_numbers(["a.jpg", "b.jpg"])
    assert names[0] != names[1]
    assert names[0] == image_numbers(["z.jpg", "a.jpg"])[1]
    written = Outcomes(names, np.array([0, 1]), np.array([0, 2]), np.array([0.9, 0.5]), np.ones(2))
    write_outcomes(tmp_path / "outcomes.npz", written)
    read = read_outcomes(tmp_path / "outcomes.npz")
    for name, values in vars(written).items():
        assert np.array_equal(getattr(read, name), values), name
    arrays = {name: getattr(read, name) for name in vars(read)}
    for broken in (
        {**arrays, "nll": arrays["nll"][:1]},
        {**arrays, "images": arrays["images"].astype(np.float32)},
        {name: values for name, values in arrays.items() if name != "predicted"},
    ):
        np.savez(tmp_path / "broken.npz", **broken)
        with pytest.raises(UserError, match=r"broken\.npz: not the outcomes of a run"):
            read_outcomes(tmp_path / "broken.npz")


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"logits": np.full((2, 3), np.nan)}, "finite logits"),
        ({"logits": np.zeros((2, 3), dtype=int)}, "finite logits"),
        ({"labels": np.zeros(2)}, "whole labels"),
        ({"labels": np.array([0, 1, 1])}, r"logits \[N, C\], labels \[N\] and classnames \[C\]"),
        ({"labels": np.array([0, 3])}, "labels from 0 to 2"),
        ({"labels": np.array([0, -1])}, "labels from 0 to 2"),
        ({"classnames": np.zeros(3)}, "names as text"),
        ({"text_features": np.full((3, 4), np.inf)}, "finite text features"),
        ({"classnames": None}, "classnames missing"),
    ],
)
def test_predictions_out_of_range_are_refused(tmp_path, arrays, message):
    good = {"logits": np.zeros((2, 3)), "labels": np.array([0, 1]), "classnames": list("abc")}
    held = {name: values for name, values in (good | arrays).items() if values is not None}
    np.savez(tmp_path / "p.npz", **held)
    with pytest.raises(UserError, match=rf"p\.npz: .*{message}"):
        read_predictions(tmp_path / "p.npz")


def test_bytes_that_are_no_text_survive_in_a_record(tmp_path):
    name = os.fsdecode(b"caf\xe9")
    write_results(tmp_path / "results.json", RECORD | {"notes": [name]})
    assert read_results(tmp_path / "results.json")["notes"] == [name]
    assert image_numbers([name])[0] not in image_numbers(["caf", "cafe"])


def test_a_member_that_claims_more_than_memory_is_refused(tmp_path):
    path = tmp_path / "p.npz"
    header = np.lib.format.magic(1, 0)
    with zipfile.ZipFile(path, "w") as archive:
        text = "{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000000, 1000), }"
        padded = text.ljust(117) + "\n"
        archive.writestr("logits.npy", header + struct.pack("<H", len(padded)) + padded.encode())
    with pytest.raises(UserError, match=r"p\.npz: not a readable npz"):
        read_predictions(path)
