"""Configurations: strict keys, methods, and what contradicts itself."""

import json
import subprocess
import sys

import pytest

from interreplay.errors import UsageError
from interreplay.focal.reading import read, read_file
from interreplay.focal.settings import METHODS, describe, keys


def test_defaults_are_those_of_the_old_code():
    settings = read({})
    algo = settings.algo_params
    assert (settings.latent_size, settings.net_size, settings.seed_list) == (20, 256, (0, 1, 2))
    assert (algo.meta_batch, algo.batch_size, algo.embedding_batch_size) == (16, 256, 64)
    assert (algo.alpha_init, algo.alpha_max, algo.alpha_lr, algo.c_iter) == (500, 2000, 1, 3)
    assert (algo.discount, algo.reward_scale, algo.target_divergence) == (0.99, 5, 0.05)
    assert (algo.use_brac, algo.use_value_penalty, algo.divergence_name) == (True, False, "kl")


def test_what_was_resolved_is_read_back_from_json():
    settings = read({"algo_params": {"train_epoch": [200, 400], "reward_scale": 100}})
    assert settings.algo_params.train_epoch == (200, 400)
    assert isinstance(settings.algo_params.reward_scale, float)
    assert read(json.loads(json.dumps(settings.as_dict()))) == settings


@pytest.mark.parametrize("method", METHODS)
def test_a_method_sets_its_keys_and_is_read_back(method):
    settings = read({"method": method})
    for name, value in METHODS[method].items():
        assert getattr(settings.algo_params, name) == value
    assert read(settings.as_dict()) == settings
    # Named beside the file, it goes over what the file says.
    assert read({"algo_params": {"use_brac": True}}, method).method == method


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"algo_params": {"meta_bach": 3}}, "'algo_params.meta_bach'.*'algo_params.meta_batch'"),
        ({"meta_batch": 3}, "belongs at 'algo_params.meta_batch'"),
        ({"algo_parms": {}}, "nearest known one is 'algo_params'"),
        ({"algo_params": 3}, "must be an object"),
        ({"algo_params": {"meta_batch": "8"}}, 'meta_batch is "8"; it must be a whole number'),
        ({"algo_params": {"meta_batch": True}}, "must be a whole number"),
        ({"algo_params": {"use_brac": 1}}, "must be true or false"),
        ({"algo_params": {"discount": 1.2}}, "discount is 1.2; it must be 1 or less"),
        ({"algo_params": {"qf_lr": 0}}, "must be above 0"),
        ({"algo_params": {"qf_lr": float("nan")}}, "must be a number"),
        ({"algo_params": {"meta_batch": 1}}, "must be 2 or more"),
        ({"algo_params": {"divergence_name": "js"}}, "choose one of kl, w, mmd"),
        ({"algo_params": {"train_epoch": [3]}}, "write \\[first, last\\]"),
        ({"algo_params": {"train_epoch": [1, -2]}}, "must be 0 or more"),
        ({"seed_list": [1, 1]}, "each seed once"),
        ({"seed_list": 1}, "list of whole numbers"),
        ({"method": "pearl"}, "choose one of focal"),
        ({"method": "batch_pearl", "algo_params": {"use_brac": True}}, "drop one of them"),
        ({"algo_params": {"task_inference": "none"}}, "nothing would train the encoder"),
        ({"algo_params": {"mb_replace": False}}, "there are 2 training tasks"),
        ({"algo_params": {"use_brac": False, "use_value_penalty": True}}, "needs use_brac"),
        ({"method": "contextual_bcq", "algo_params": {"value": "v"}}, "knows neither"),
        ({"algo_params": {"alpha_init": 5000}}, "raise alpha_max"),
    ],
)
def test_what_cant_be_is_refused_in_a_sentence(given, sentence):
    with pytest.raises(UsageError, match=sentence):
        read(given)


def test_files_that_cant_be_read_are_named(tmp_path):
    with pytest.raises(UsageError, match="can't be read"):
        read_file(tmp_path / "none.json")
    broken = tmp_path / "broken.json"
    broken.write_text('{"latent_size": 5,')
    with pytest.raises(UsageError, match="is not JSON"):
        read_file(broken)
    broken.write_text("[1]")
    with pytest.raises(UsageError, match="no JSON object"):
        read_file(broken)
    broken.write_text('{"latent_size": 5}')
    assert read_file(broken).latent_size == 5


def test_every_key_is_described_once():
    lines = describe().splitlines()
    paths = [entry.path for entry in keys()]
    assert [line.split()[0] for line in lines] == paths
    assert len(set(paths)) == len(paths)
    assert all(entry.rule["help"] for entry in keys())


def test_settings_need_neither_torch_nor_ray():
    code = (
        "import sys, interreplay.focal.reading; "
        "assert not {'torch', 'ray', 'numpy'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
