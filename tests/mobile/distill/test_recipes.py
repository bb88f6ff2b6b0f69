"""Recipes, maps of layers, and what is refused."""

import pytest

from kerasbert.errors import InputError
from kerasbert.mobile.distill.recipes import RECIPES, Distillation, find_recipe, layer_map, spread


def test_layer_map():
    assert layer_map(4, 12) == (3, 6, 9, 12)  # TinyBERT: g(m) = 3m
    assert layer_map(6, 12) == (2, 4, 6, 8, 10, 12)
    assert layer_map(3, 3) == (1, 2, 3)
    assert layer_map(4, 6) == (2, 3, 5, 6)
    assert layer_map(2, 12, [1, 9]) == (1, 9)
    for student in range(1, 9):
        for teacher in range(1, 9):
            found = layer_map(student, teacher)
            assert found[-1] == teacher
            assert list(found) == sorted(found)
            assert found[0] >= 1


def test_copied_layers_are_those_of_the_released_distilbert():
    assert spread(6, 12) == (0, 2, 4, 7, 9, 11)
    assert spread(3, 6) == (0, 2, 5)
    assert spread(1, 4) == (0,)
    assert spread(4, 4) == (0, 1, 2, 3)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: layer_map(2, 4, [1]), "layers has 1 entries, expected one for each of the student's 2 layers"),
        (lambda: layer_map(2, 4, [1, 5]), "layers names the teacher's layer 5, which has layers 1 to 4"),
        (lambda: layer_map(2, 4, [0, 1]), "layer 0, which has layers 1 to 4"),
        (lambda: spread(5, 4), "a student of 5 layers, expected 1 to 4"),
        (lambda: spread(0, 4), "a student of 0 layers, expected 1 to 4"),
        (lambda: Distillation({"soft": 1.0}, temperature=0), "temperature must be a number above 0. Received: 0"),
        (lambda: Distillation({"soft": 1.0}, temperature=-1.0), "temperature must be a number above 0"),
        (lambda: Distillation({"soft": float("nan")}), "the weight of loss 'soft' must be a number of at least 0"),
        (lambda: Distillation({"sofd": 1.0}), "no loss 'sofd'. Nearest: 'soft'"),
        (lambda: Distillation({"soft": 0}), "no losses, expected at least one"),
        (lambda: find_recipe("tinybird"), "no recipe 'tinybird'. Nearest: 'tinybert'"),
    ],
)
def test_what_is_refused(make, text):
    with pytest.raises(InputError, match=text):
        make()


def test_a_recipe_with_other_values():
    found = find_recipe("distilbert", temperature=3.0)
    assert dict(found.losses) == {"soft": 5.0, "labels": 2.0, "cosine": 1.0}
    assert found.temperature == 3.0
    assert dict(find_recipe("distilbert", {"logits": 1}).losses) == {"logits": 1.0}
    assert RECIPES["distilbert"].temperature == 2.0
    assert (find_recipe("tinybert").answers, find_recipe("tinybert").inner) == (False, True)
    assert (find_recipe("soft").answers, find_recipe("soft").inner) == (True, False)
