"""`--kv-cache-dtype`: names of the user, names that backends declare, and what happens where no backend has them."""

import pytest

from core.api.errors import PluginError
from core.config.resolved import Options
from core.options.engine import KVOptions


@pytest.mark.parametrize(
    ("asked", "concrete"),
    [
        ("auto", "bfloat16"),
        ("float16", "float16"),
        ("fp8", "float8_e4m3fn"),
        ("fp8_e4m3", "float8_e4m3fn"),
        ("fp8_e5m2", "float8_e5m2"),
        ("int8", "int8"),
        ("float8_e5m2", "float8_e5m2"),
    ],
)
def test_the_users_names_become_those_of_the_backends(asked, concrete):
    assert KVOptions(kv_dtype=asked).concrete_dtype("bfloat16") == concrete


@pytest.mark.covers("ATTN-01", "ATTN-03")
@pytest.mark.parametrize("asked", ["int8", "fp8", "fp8_e5m2"])
def test_a_dtype_that_no_backend_has_stops_the_start_and_lists_what_there_is(site, asked):
    from core.selection.resolver import resolve

    site.install_world()
    with pytest.raises(PluginError) as caught:
        resolve(Options(kv=KVOptions(kv_dtype=asked)), catalogue=site.catalogue())
    concrete = KVOptions(kv_dtype=asked).concrete_dtype("bfloat16")
    text = str(caught.value)
    assert f"kv dtype {concrete} not in {{bfloat16, float32}}" in text
    assert f"kv dtype {concrete} not in {{bfloat16, float16, float32}}" in text
