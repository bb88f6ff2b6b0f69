"""Bytes from and to HBM, counted by hand in modules as the compiler writes them."""

from kerasbert.tpu_check.traffic import cycles, hbm_bytes, repeated_flops

# 8 x 128 float32 are 4,096 bytes
HBM, VMEM = "f32[8,128]{1,0:T(8,128)}", "f32[8,128]{1,0:T(8,128)S(1)}"
HEAD = "HloModule step, is_scheduled=true\n\n"


def entry(*lines: str) -> str:
    return f"ENTRY %main (a: f32[8,128]) -> f32[8,128] {{\n  %a = {HBM} parameter(0)\n" + "\n".join(lines) + "\n}\n"


def test_what_lies_in_the_chips_own_memory_costs_nothing():
    lines = f"  %b = {VMEM} negate(%a)", f"  %c = {VMEM} add(%b, %b)", f"  ROOT %d = {HBM} add(%c, %a)"
    assert hbm_bytes(HEAD + entry(*lines)) == 3 * 4096  # a twice, d


def test_views_cost_nothing():
    lines = "  %b = f32[1024]{0:T(1024)} bitcast(%a)", f"  ROOT %t = ({HBM}, f32[1024]{{0}}) tuple(%a, %b)"
    assert hbm_bytes(HEAD + entry(*lines)) == 0


def test_the_padding_of_tiles_is_moved_with_an_array():
    """A last axis of 12 is kept as 128, rows by eights; the fastest axis stands first in a layout."""
    narrow, turned = "bf16[3,5,12]{2,1,0:T(8,128)(2,1)}", "bf16[3,5,12]{0,2,1:T(8,128)(2,1)}"
    lines = f"  %b = {narrow} fusion(%a), kind=kLoop, calls=%x", f"  ROOT %c = {turned} transpose(%b)"
    written, back = 3 * 8 * 128 * 2, 5 * 16 * 128 * 2
    assert hbm_bytes(HEAD + entry(*lines)) == 4096 + written + written + back


def test_a_cut_moves_its_share_of_a_padded_array():
    padded, row = "f32[8,12]{1,0:T(8,128)}", "f32[2,12]{1,0:T(2,128)S(1)}"
    lines = f"  %b = {padded} fusion(), kind=kLoop, calls=%x", f"  ROOT %c = {row} slice(%b), slice={{[0:2], [0:12]}}"
    assert hbm_bytes(HEAD + entry(*lines)) == 4096 + 1024


def test_an_array_that_is_fetched_in_slices_is_read_once():
    half = "f32[4,128]{1,0:T(8,128)S(1)}"
    lines = [
        f"  %s.{i} = (({HBM}), {half}, s32[]{{:S(2)}}) slice-start(%a), slice={{[{4 * i}:{4 * i + 4}], [0:128]}}\n"
        f"  %d.{i} = {half} slice-done(%s.{i})"
        for i in range(2)
    ]
    lines.append(f'  ROOT %c = {VMEM} custom-call(%d.0, %d.1), custom_call_target="ConcatBitcast"')
    assert hbm_bytes(HEAD + entry(*lines)) == 4096


def test_a_copy_there_and_back_costs_one_side_each():
    lines = (
        f"  %s = ({VMEM}, {HBM}, u32[]{{:S(2)}}) copy-start(%a)",
        f"  %d = {VMEM} copy-done(%s)",
        f"  %e = ({HBM}, {VMEM}, u32[]{{:S(2)}}) copy-start(%d)",
        f"  ROOT %f = {HBM} copy-done(%e)",
    )
    assert hbm_bytes(HEAD + entry(*lines)) == 2 * 4096


# a loop's body: it reads a row of the first array and writes it into the second
STEP = """%fused_row (p.0: f32[8,128], p.1: s32[]) -> f32[1,128] {
  %p.0 = f32[8,128]{1,0} parameter(0)
  %p.1 = s32[]{:T(128)S(6)} parameter(1)
  ROOT %cut = f32[1,128]{1,0} dynamic-slice(%p.0, %p.1, %p.1), dynamic_slice_sizes={1,128}
}

%fused_write (q.0: f32[8,128], q.1: f32[1,128], q.2: s32[]) -> f32[8,128] {
  %q.0 = f32[8,128]{1,0} parameter(0)
  %q.1 = f32[1,128]{1,0} parameter(1)
  %q.2 = s32[]{:S(6)} parameter(2)
  ROOT %put = f32[8,128]{1,0} dynamic-update-slice(%q.0, %q.1, %q.2, %q.2)
}

%body (state: (s32[], f32[8,128], f32[8,128])) -> (s32[], f32[8,128], f32[8,128]) {
  %state = (s32[]{:S(6)}, f32[8,128]{1,0}, f32[8,128]{1,0}) parameter(0)
  %i = s32[]{:S(6)} get-tuple-element(%state), index=0
  %x = f32[8,128]{1,0} get-tuple-element(%state), index=1
  %y = f32[8,128]{1,0} get-tuple-element(%state), index=2
  %row = f32[1,128]{1,0:S(1)} fusion(%x, %i), kind=kLoop, calls=%fused_row
  %after = f32[8,128]{1,0} fusion(%y, %row, %i), kind=kLoop, calls=%fused_write
  ROOT %next = (s32[]{:S(6)}, f32[8,128]{1,0}, f32[8,128]{1,0}) tuple(%i, %x, %after)
}

%condition (state.1: (s32[], f32[8,128], f32[8,128])) -> pred[] {
  %state.1 = (s32[]{:S(6)}, f32[8,128]{1,0}, f32[8,128]{1,0}) parameter(0)
  ROOT %more = pred[]{:S(6)} constant(true)
}

"""


def test_a_loop_counts_as_often_as_it_turns_and_what_it_cuts_and_updates_in_place_as_parts():
    turns = 'backend_config={"known_trip_count":{"n":"8"}}'
    loop = (
        f"  %w = (s32[]{{:S(6)}}, {HBM}, {HBM}) while(%t), condition=%condition, body=%body, {turns}",
        f"  ROOT %g = {HBM} get-tuple-element(%w), index=2",
    )
    state = f"  %t = (s32[]{{:S(6)}}, {HBM}, {HBM}) tuple(%zero, %a, %a)"
    assert hbm_bytes(HEAD + STEP + entry(state, *loop)) == 8 * 2 * 512


def test_a_loop_as_tensorflow_lowers_it_turns_up_to_the_least_bound_of_its_condition():
    """Its FLOPs beyond the first turn, which XLA does not count; nested, they multiply."""
    dot = "f32[8,16]{1,0} dot(f32[8,4]{1,0} %x, f32[4,16]{1,0} %y), lhs_contracting_dims={1}, rhs_contracting_dims={0}"
    text = f"""HloModule step

%bounds (s.1: s32[]) -> (pred[]) {{
  %s.1 = s32[] parameter(0)
  %most = s32[] constant(9)
  %less.1 = pred[] compare(s32[] %s.1, s32[] %most), direction=LT
  %three = s32[] constant(3)
  %less.2 = pred[] compare(s32[] %s.1, s32[] %three), direction=LT
  ROOT %and = pred[] and(pred[] %less.1, pred[] %less.2)
}}

%condition (s.2: s32[]) -> pred[] {{
  %s.2 = s32[] parameter(0)
  ROOT %c = pred[] call(s32[] %s.2), to_apply=%bounds
}}

%inner (s.3: s32[]) -> s32[] {{
  %x = f32[8,4]{{1,0}} constant({{...}})
  %y = f32[4,16]{{1,0}} constant({{...}})
  %d.1 = {dot}, backend_config={{"estimated_cycles":"10"}}
  ROOT %s.3 = s32[] parameter(0)
}}

%outer (s.4: s32[]) -> s32[] {{
  %s.4 = s32[] parameter(0)
  ROOT %w.1 = s32[] while(s32[] %s.4), condition=%condition, body=%inner
}}

ENTRY %main (s.5: s32[]) -> s32[] {{
  %s.5 = s32[] parameter(0)
  %x = f32[8,4]{{1,0}} constant({{...}})
  %y = f32[4,16]{{1,0}} constant({{...}})
  %d.2 = {dot}
  ROOT %w.2 = s32[] while(s32[] %s.5), condition=%condition, body=%outer
}}
"""
    assert repeated_flops(text) == (3 * 3 - 1) * 2 * 8 * 16 * 4
    assert cycles(text) == 3 * 3 * 10


def test_a_fusion_that_reads_all_of_what_it_also_cuts():
    fused = STEP.replace("ROOT %cut", "%cut").replace(
        "dynamic_slice_sizes={1,128}\n",
        "dynamic_slice_sizes={1,128}\n  ROOT %sum = f32[8,128]{1,0} add(%p.0, %p.0)\n",
        1,
    )
    line = f"  ROOT %b = {VMEM} fusion(%a, %i), kind=kLoop, calls=%fused_row"
    assert hbm_bytes(HEAD + fused + entry(line)) == 4096
