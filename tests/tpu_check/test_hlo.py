"""Unsafe instructions are found in HLO text, with the layer that they come from."""

import pytest

from kerasbert.tpu_check import hlo

SAFE = """HloModule step, input_output_alias={ {0}: (1, {}, may-alias) }

%region_0.86 (a.1: f32[], b.2: f32[]) -> f32[] {
  ROOT %add.3 = f32[] add(f32[] %a.1, f32[] %b.2)
}

ENTRY %step (arg0.1: s32[8,24]) -> (f32[8]) {
  %arg0.1 = s32[8,24]{1,0} parameter(0), metadata={op_name="XLA_Args"}
  %all-reduce.4 = f32[8]{0} all-reduce(f32[8]{0} %x), to_apply=%region_0.86, metadata={op_name="XlaAllReduce"}
  %custom-call.5 = (f32[8]{0}, s32[8]{0}) custom-call(f32[8]{0} %x), custom_call_target="TopK"
  ROOT %tuple.6 = (f32[8]{0}) tuple(f32[8]{0} %all-reduce.4)
}
"""
AT = 'metadata={op_type="X" op_name="gradient_tape/pretraining/encoder/block_0/attention/X" source_line=1}'
UNSAFE = {
    "dynamic dimension": f"  %s.7 = s64[<=4,1]{{1,0}} set-dimension-size(s64[4,1]{{1,0}} %c, s32[] %r), {AT}",
    "float64": f"  ROOT %c.7 = f64[4]{{0}} convert(f32[4]{{0}} %c), {AT}",
    "custom call": f'  %c.7 = f32[4]{{0}} custom-call(f32[4]{{0}} %c), custom_call_target="__onednn$matmul", {AT}',
    "host operation": f"  %i.7 = ((f32[4]{{0}}), token[]) infeed(token[] %t), {AT}",
}


def test_a_safe_module_has_no_problems():
    assert hlo.problems(SAFE) == []


@pytest.mark.parametrize("kind", UNSAFE)
def test_each_kind_is_found_once_with_its_layer(kind):
    (found,) = hlo.problems(SAFE + UNSAFE[kind] + "\n" + UNSAFE[kind].replace(".7", ".8") + "\n")
    assert (found.kind, found.layer) == (kind, "pretraining/encoder/block_0/attention")


def test_a_dynamic_dimension_in_any_place_and_inside_of_a_tuple():
    lines = "  %a.1 = f32[4,<=8]{1,0} add(f32[4,8] %x, f32[4,8] %y)\n  %t.2 = (s32[], f32[<=4]{0}) tuple(s32[] %a, f32[<=4] %b)\n"
    (found,) = hlo.problems(lines)
    assert (found.kind, found.layer) == ("dynamic dimension", "train step")
    assert "add gives f32[4,<=8]" in found.detail


def test_the_results_of_an_unsafe_layer_are_not_told_again():
    result = '  %r.9 = f64[4]{0} reshape(f64[4]{0} %c.7), metadata={op_name="XLA_Retvals"}\n'
    assert [found.layer for found in hlo.problems(UNSAFE["float64"] + "\n" + result)] == [
        "pretraining/encoder/block_0/attention"
    ]
    assert [found.layer for found in hlo.problems(result)] == ["train step"]


def test_an_operand_alone_is_no_second_problem():
    # the instruction that makes the value is reported, not each that reads it
    assert hlo.problems("  %r.1 = s64[] reduce(s64[<=4,1]{1,0} %c, s64[] %z), dimensions={0,1}\n") == []


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("encoder/block_0/attention/MatMul", "encoder/block_0/attention"),
        ("gradient_tape/encoder/norm/mul/Mul", "encoder/norm/mul"),
        ("pretraining_1/encoder_1/block_11_1/dropout_1/add", "pretraining/encoder/block_11/dropout"),
        ("while/body/encoder/Add", "encoder"),
        ("XLA_Args", "train step"),
        ("", "train step"),
    ],
)
def test_layer_of_an_operation(name, expected):
    assert hlo.layer(name) == expected


def test_what_tensorflow_says_of_an_operation_without_a_kernel():
    message = """Failed getting HLO text: 'Detected unsupported operations when trying to compile graph __inference_g_30[]
 on XLA_CPU_JIT: EagerPyFunc (No registered 'EagerPyFunc' OpKernel for XLA_CPU_JIT devices compatible with node
 {{node encoder/block_0/EagerPyFunc}}){{node encoder/block_0/EagerPyFunc}}"""
    found = hlo.lowering_problem(message)
    assert str(found) == "encoder/block_0: lowering: operation EagerPyFunc has no kernel for a compiled step"
    other = hlo.lowering_problem("shapes do not\n  match")
    assert (other.layer, other.detail) == ("train step", "shapes do not match")
