"""Law: the difference of two images leads from one to the other."""

from hypothesis import given
from hypothesis import strategies as st

from nodeagent.proxy.dataplane.image.delta import apply_delta, diff_images
from nodeagent.proxy.dataplane.image.image import TableImage

images = st.fixed_dictionaries(
    {name: st.dictionaries(st.binary(max_size=1), st.binary(max_size=1), max_size=4) for name in ("one", "two")}
)


@given(wanted=images, programmed=images)
def test_applying_a_difference_leads_to_what_is_wanted(wanted: TableImage, programmed: TableImage) -> None:
    delta = diff_images(wanted, programmed)
    touched = sum(
        wanted[name].get(key) != programmed[name].get(key)
        for name in wanted
        for key in wanted[name].keys() | programmed[name].keys()
    )
    assert delta.touched == touched
    assert delta.empty == (wanted == programmed)
    apply_delta(programmed, delta)
    assert programmed == wanted
    assert diff_images(wanted, programmed).empty
