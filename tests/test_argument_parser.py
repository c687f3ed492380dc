import dataclasses
import json
import re
from pathlib import Path

import pytest

from argument_parser import CONFIGS, Settings
from interreplay.algorithms import config_class
from interreplay.environments.ids import MUJOCO
from interreplay.errors import UsageError
from interreplay.launch.kinds.replay import algorithm_config
from interreplay.launch.settings.command_line import build_parser
from interreplay.launch.settings.resolution import parse, plan
from interreplay.launch.settings.translation import replay_settings
from replay_buffers import CATALOG

ROOT = Path(__file__).parents[1]


def read(line):
    return parse(line.split())[0]


@pytest.mark.parametrize(
    ("flags", "buffer", "prioritized", "label"),
    [
        ("", "vanilla", False, "vanilla"),
        ("--custom_replay_buffer False", "vanilla", False, "vanilla"),
        ("--custom_replay_buffer False --prioritized_replay", "per", True, "per"),
        ("--custom_replay_buffer True", "nmer", False, "nmer"),
        ("--custom_replay_buffer True --knn_baseline", "nmer", False, "nmer"),
        ("--custom_replay_buffer yes --naive_mixup_baseline", "mixup", False, "mixup"),
        ("-naive_mixup", "mixup", False, "mixup"),
        ("-noisy_replay", "gaussian", False, "gaussian"),
        ("--buffer per", "per", True, "per"),
        ("--buffer per --custom_replay_buffer 0", "per", True, "per"),
        ("--buffer nmer --knn_baseline", "nmer", False, "nmer"),
        ("--buffer nmer --prioritized_replay", "nmer", True, "nmer-per"),
        ("--buffer gaussian --prioritized_replay", "gaussian", True, "gaussian-per"),
        ("--custom_replay_buffer True -s4rl", "s4rl", False, "s4rl"),
        ("--custom_replay_buffer True -ct", "ct", False, "ct"),
        ("--custom_replay_buffer True -gp", "bier", False, "bier"),
        ("--prioritized_replay --gaussian_process", "bier", True, "bier-per"),
        ("--only_noise --noise_multiple 0.1", "gaussian", False, "gaussian"),
        ("--buffer nmer --kneighbors 5 --uniform_replay", "vanilla", False, "vanilla"),
        ("--buffer nmer --prioritized_replay --uniform_replay", "per", True, "per"),
    ],
)
def test_recipes_by_their_new_and_old_names(flags, buffer, prioritized, label):
    settings = read(flags)
    assert (settings.buffer, settings.prioritized_replay, settings.recipe_label) == (
        buffer,
        prioritized,
        label,
    )


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--zzz 3", "unknown flag --zzz: --help lists all flags"),
        ("--buffers nmer", "unknown flag --buffers: did you mean --buffer?"),
        ("--see 1", "unknown flag --see: did you mean --seed?"),
        ("--buffer her", "choose from"),
        ("--trainer PPO", "choose from"),
        ("--framework tf2", "choose from"),
        ("--seed 1.5", "'1.5' is not a whole number"),
        ("--seed -1", "--seed is -1; it must be 0 or more"),
        ("--gamma nan", "'nan' is not a number"),
        ("--gamma 1.1", "--gamma is 1.1; it must be 1 or less"),
        ("--custom_replay_buffer maybe", "'maybe' is neither True nor False"),
        (
            "--knn_baseline --naive_mixup_baseline",
            "--knn_baseline and --naive_mixup_baseline name two different recipes",
        ),
        ("--knn_baseline --buffer mixup", "--knn_baseline and --buffer mixup"),
        (
            "--custom_replay_buffer False --knn_baseline",
            "--custom_replay_buffer False and --knn_baseline contradict",
        ),
        (
            "--custom_replay_buffer True --buffer vanilla",
            "--custom_replay_buffer True and --buffer vanilla contradict",
        ),
        ("--buffer nmer --kneighbors 0", "--kneighbors is 0; it must be 1 or more"),
        ("--kneighbors 5", "--kneighbors needs recipes with nearest neighbours"),
        ("--buffer mixup -knn 5", "--kneighbors needs"),
        ("--mixup_alpha 0.5", "--mixup_alpha needs recipes that mix"),
        ("--buffer nmer --noise_std 0.2", "--noise_std needs the gaussian recipe"),
        ("--buffer nmer -is", "--use_importance_sampling needs"),
        ("--prioritized_replay_beta 0.5", "needs --prioritized_replay"),
        ("--buffer nmer -smote -mixup", "exclude each other"),
        ("-s4rl -ct", "--s4rl_baseline and --ct_baseline name two different recipes"),
        ("--only_noise", "--only_noise needs --noise_multiple"),
        (
            "--buffer gaussian --noise_multiple 1 --noise_std 0.1",
            "--noise_std needs the gaussian recipe without",
        ),
        ("--noise_multiple 1", "--noise_multiple needs the gaussian recipe"),
        ("--buffer ct --mixup_alpha 0.5", "or ct with --ct_fixed"),
        ("--buffer nmer --ct_fixed", "--ct_fixed needs the ct recipe"),
        ("--s4rl_view switch", "--s4rl_view needs the s4rl recipe"),
        ("--buffer nmer --interp_prio_update", "together with --prioritized_replay"),
        ("--buffer s4rl --prioritized_replay -is", "needs a recipe that mixes"),
        ("--buffer nmer -k_max -2", "--furthest_neighbor is -2"),
        ("--buffer nmer -smote --mixup_alpha 1", "no meaning under --smote_interpolation"),
        ("--buffer nmer --mixup_alpha 0", "--mixup_alpha is 0.0; it must be above 0"),
        ("--buffer_size -5", "--buffer_size is -5"),
        ("--replay_ratio 0", "--round_robin_weights is 0.0; it must be above 0"),
        ("--total_timesteps 0", "--total_timesteps is 0"),
        ("--hidden_sizes 64 0", "--hidden_sizes is 0"),
        ("--hidden_sizes 1e6", "--hidden_sizes is 1000000; it must be 16384 or less"),
        ("--train_batch_size 1e12", "--train_batch_size is 1000000000000"),
        ("--seed 5e9", "--seed is 5000000000; it must be 4000000000 or less"),
        ("--config /bin/ls", "is not JSON"),
        (
            "--local_mode --num_learners 2",
            "--local_mode keeps everything in one process but --num_learners",
        ),
        ("--train_batch_size 255 --num_learners 2", "choose a multiple of --num_learners"),
        (
            "--num_gpus 2",
            "there is a GPU per learner; set --num_learners 2, or --num_gpus to 1 or 0",
        ),
        (
            "--whole_episodes --num_envs_per_worker 2",
            "--whole_episodes and --num_envs_per_worker 2 contradict",
        ),
        (
            "--whole_episodes --rollout_fragment_length 4",
            "--whole_episodes and --rollout_fragment_length 4",
        ),
        ("--use_delta", "--use_delta needs recipes that mix"),
        ("--seed 1 --seeds 2 3", "--seed and --seeds contradict"),
        ("--max_concurrent 2", "--max_concurrent needs several runs"),
        ("--seeds 1 2 --max_concurrent 0", "--max_concurrent is 0"),
        ("--seeds 1 2", "one run is wanted here, but the settings ask for 2"),
        ("--sleep_time -1", "--sleep_time is -1"),
        ("-gp --knn_baseline", "--gaussian_process and --knn_baseline name two different recipes"),
        (
            "--buffer nmer --use_ard",
            "--use_ard needs the bier recipe, but this run's recipe is nmer",
        ),
        ("-gp --matern_nu 1.5", "--matern_nu needs the bier recipe with --kernel matern"),
        ("-gp --kernel matern --matern_nu 2", "choose from"),
        ("-gp --kernel cosine", "choose from"),
        ("-gp -std_x", "--standardize_gpr_x needs the bier recipe with --normalize"),
        ("-gp --gp_pca_components 3", "needs the bier recipe with --gp_pca"),
        ("-gp --use_priors", "--use_priors needs the bier recipe with --gpytorch"),
        ("-gp --use_botorch", "--use_botorch needs the bier recipe with --gpytorch"),
        ("-gp --est_lengthscale_constant 3", "needs the bier recipe with --est_lengthscales"),
        ("-gp --mc_hyper", "--mc_hyper needs the bier recipe with --global_hyperparams"),
        ("-gp --retrain_interval 9", "with --global_hyperparams or --single_model"),
        ("-gp --warmstart_global", "with --global_hyperparams or --single_model"),
        ("-gp --global_hyperparams --mc_hyper --train_size 9", "without --mc_hyper"),
        ("-gp --queue_gb 2", "--queue_gb needs the bier recipe with --use_queue"),
        ("-gp --update_hyperparams", "with --use_queue"),
        ("-gp --holdout_split 0.5", "with --perform_holdout_eval"),
        (
            "-gp --perform_holdout_eval --holdout_split 1",
            "--holdout_split is 1.0; it must be 0.99 or less",
        ),
        ("-gp --train_size 1 --single_model", "--train_size is 1; it must be 2 or more"),
        ("-gp --composite_kernel", "--composite_kernel needs --gpytorch"),
        ("-gp --use_ard", "--use_ard with --kernel rq needs --gpytorch"),
        ("-gp --mean_type linear", "--mean_type linear needs --gpytorch"),
        ("-gp --gpytorch --est_lengthscales", "drop one of them"),
        ("-gp --single_model --global_hyperparams", "drop --global_hyperparams"),
        ("-gp --use_queue --multi_sample", "drop --single_model and --multi_sample"),
        ("-gp --use_queue --prioritized_replay -is", "which --use_queue's are not"),
        ("--buffer gaussian --use_delta", "--use_delta needs"),
        ("--local_mode --num_workers 2", "--local_mode keeps everything in one process"),
        ("--config /no/such/file.json", "can't be read: No such file"),
    ],
)
def test_what_cannot_be_used_is_one_sentence(flags, message):
    with pytest.raises(UsageError, match=re.escape(message)) as caught:
        read(flags)
    assert "\n" not in str(caught.value)


def test_whole_numbers_may_be_written_as_1e6():
    settings = read("--buffer_size 1e6 --total_timesteps 2.5e4 --seed 3")
    assert (settings.buffer_size, settings.total_timesteps, settings.seed) == (1_000_000, 25_000, 3)


@pytest.mark.parametrize(("env", "starts", "budget"), [
    ("HalfCheetah-v2", 10_000, 1_000_000), ("Humanoid-v5", 10_000, 1_000_000), ("Swimmer-v4", 10_000, 1_000_000),
    ("InvertedPendulum-v2", 1_500, 50_000), ("InvertedDoublePendulum-v5", 1_500, 50_000), ("Reacher-v2", 1_500, 1_000_000),
    ("Pendulum-v1", 1_500, 1_000_000), ("dmc/walker_walk", 10_000, 1_000_000), ("dmc.dm_control_configs.cup_catch", 10_000, 1_000_000),
    ("some.module:Reacher-v5", 1_500, 1_000_000), ("some.module:MyEnv", 10_000, 1_000_000), ("SomebodyElses-v0", 10_000, 1_000_000),
])  # fmt: skip
def test_environments_bring_their_warm_up_and_budget(env, starts, budget):
    settings = read(f"--env {env}")
    assert (settings.learning_starts, settings.total_timesteps) == (starts, budget)
    assert read(f"--env {env} --learning_starts 7").learning_starts == 7


def test_flags_win_over_the_file_and_the_file_over_defaults(tmp_path):
    file = tmp_path / "c.json"
    file.write_text(
        json.dumps(
            {"gamma": 0.5, "tau": 0.1, "buffer": "nmer", "kneighbors": 3, "hidden_sizes": [7]}
        )
    )
    settings = read(f"--config {file} --tau 0.2")
    assert (settings.gamma, settings.tau, settings.kneighbors, settings.hidden_sizes) == (
        0.5,
        0.2,
        3,
        (7,),
    )
    assert settings.train_batch_size == 256
    # A recipe named by a flag replaces the file's, even by its old name.
    file.write_text(json.dumps({"buffer": "gaussian"}))
    assert read(f"--config {file} --knn_baseline").buffer == "nmer"


@pytest.mark.parametrize(
    ("file", "flags", "expected"),
    [
        ("--buffer per", "--buffer vanilla", "--buffer vanilla"),
        ("--buffer per", "--custom_replay_buffer False", ""),
        ("--buffer nmer", "--buffer vanilla", "--buffer vanilla"),
        ("--buffer nmer", "-smote", "--buffer nmer -smote"),
        ("--buffer nmer -smote", "--mixup_alpha 0.5", "--buffer nmer --mixup_alpha 0.5"),
        ("--buffer nmer --prioritized_replay -is", "--buffer gaussian", "--buffer gaussian --prioritized_replay"),
        ("-gp --gpytorch --global_hyperparams --mc_hyper --normalize", "--buffer nmer", "--buffer nmer -knn 50"),
        ("-gp --kernel matern --matern_nu 0.5", "--kernel rbf", "-gp --kernel rbf"),
        ("--buffer nmer", "--buffer bier", "--buffer bier -knn 10"),
        ("--buffer bier", "--buffer nmer", "--buffer nmer -knn 20"),
        ("-gp --use_ard --kernel rbf", "--buffer bier", "-gp --use_ard --kernel rbf"),
        ("--trainer SAC --hidden_sizes 8", "--trainer TD3 --actor_lr 1e-3 --critic_lr 1e-3", "--trainer TD3 --hidden_sizes 8"),
    ],
)  # fmt: skip
def test_a_flag_may_change_the_recipe_or_trainer_of_a_saved_run(tmp_path, file, flags, expected):
    saved = tmp_path / "config.json"
    saved.write_text(json.dumps(read(file).to_dict()))
    assert read(f"--config {saved} {flags}") == read(expected)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "is not JSON"),
        ("[1]", "one JSON object"),
        ('{"gama": 1}', "unknown setting 'gama'"),
        ('{"gamma": "high"}', "gamma in"),
        ('{"hidden_sizes": 64}', "is not a list"),
        ('{"prioritized_replay": "perhaps"}', "neither True nor False"),
        ('{"trainer": "PPO"}', "choose one of SAC, TD3, DDPG"),
        ('{"seed": true}', "not a whole number"),
        ('{"seeds": 3}', "seeds in .* is not a list"),
        ('{"grid": [1]}', "must be an object"),
        ('{"grid": {"gama": [1]}}', "unknown setting 'gama'"),
        ('{"grid": {"gamma": 0.9}}', "gamma in the grid of .* must be a list"),
        ('{"gamma": 0.9, "grid": {"gamma": [0.8]}}', "gamma stands in .* and in its grid"),
    ],
)
def test_a_bad_file_is_one_sentence(tmp_path, content, message):
    file = tmp_path / "c.json"
    file.write_text(content)
    with pytest.raises(UsageError, match=message):
        read(f"--config {file}")


@pytest.mark.parametrize(
    "flags",
    [
        "",
        "--buffer nmer -smote --prioritized_replay -is",
        "--buffer gaussian --hidden_sizes 8 8",
        "-gp",
        "-gp --gpytorch --kernel matern --matern_nu 0.5 --global_hyperparams --train_size 50",
        "-gp --est_lengthscales --use_queue --queue_gb 0.5 --perform_holdout_eval",
        "--buffer bier",
        "--buffer bier --single_model --train_size 50",
        "--buffer bier --est_lengthscales --prioritized_replay",
    ],
)
def test_resolved_settings_read_back_as_themselves(tmp_path, flags):
    settings = read(flags)
    file = tmp_path / "config.json"
    file.write_text(json.dumps(settings.to_dict()))
    assert read(f"--config {file}") == settings


def planned(tmp_path, content, flags=""):
    file = tmp_path / "grid.json"
    file.write_text(json.dumps(content))
    return plan(f"--config {file} {flags}".split())


def test_a_grid_is_every_combination_with_every_seed(tmp_path):
    grid = {
        "grid": {"buffer": ["vanilla", "nmer"], "env": ["Hopper-v5", "Ant-v5"]},
        "seeds": [3, 4],
    }
    runs = planned(tmp_path, grid).runs
    assert [(r.buffer, r.env, r.seed) for r in runs] == [
        (b, e, s) for b in ("vanilla", "nmer") for e in ("Hopper-v5", "Ant-v5") for s in (3, 4)
    ]
    assert all(run.num_cpus == 1 for run in runs)  # several runs share the cores
    assert planned(tmp_path, grid, "--num_cpus 2").runs[0].num_cpus == 2
    # A flag replaces the file's list.
    assert {r.env for r in planned(tmp_path, grid, "--env Hopper-v5").runs} == {"Hopper-v5"}
    assert [r.seed for r in planned(tmp_path, grid, "--seed 9 --buffer per --env Ant-v5").runs] == [
        9
    ]


def test_runs_that_differ_in_what_no_folder_shows_get_folders_of_their_own(tmp_path):
    ratios = planned(tmp_path, {"grid": {"round_robin_weights": [1, 0.5]}}).runs
    assert [run.agent_name for run in ratios] == [
        "interreplay_round_robin_weights=1",
        "interreplay_round_robin_weights=0.5",
    ]
    grid = {
        "grid": {
            "buffer": ["vanilla", "nmer"],
            "kneighbors": [5, 10],
            "hidden_sizes": [[8], [8, 8]],
        }
    }
    runs = planned(tmp_path, grid).runs
    # How many neighbours does not concern vanilla replay: 2 of it and 4 of nmer.
    assert [(r.buffer, r.kneighbors, r.hidden_sizes, r.agent_name) for r in runs] == [
        ("vanilla", None, (8,), "interreplay_hidden_sizes=8"),
        ("vanilla", None, (8, 8), "interreplay_hidden_sizes=8-8"),
        ("nmer", 5, (8,), "interreplay_kneighbors=5_hidden_sizes=8"),
        ("nmer", 5, (8, 8), "interreplay_kneighbors=5_hidden_sizes=8-8"),
        ("nmer", 10, (8,), "interreplay_kneighbors=10_hidden_sizes=8"),
        ("nmer", 10, (8, 8), "interreplay_kneighbors=10_hidden_sizes=8-8"),
    ]


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ("--env HalfCheetah-v5", {"actor_l2": 1e-3, "huber_loss": True}),
        ("--env Ant-v2", {"actor_l2": 2e-3}),
        ("--env Swimmer-v4", {"actor_l2": 2e-4}),
        ("--env Hopper-v5", {"actor_l2": 2e-2}),
        ("--env Walker2d-v5 --buffer nmer", {"actor_l2": 1e-2, "kneighbors": 10}),
        ("--env dmc/walker_walk", {"actor_l2": 1e-2}),
        ("--env MountainCarContinuous-v0", {"actor_l2": None}),  # published without a penalty
        ("--trainer TD3 --env Ant-v5", {"actor_lr": 5e-4, "critic_lr": 5e-4, "actor_l2": None, "huber_loss": False}),
        ("--buffer per", {"prioritized_replay_beta": 0.4, "final_prioritized_replay_beta": 0.4}),
        ("--env Ant-v5 --actor_l2 0.5", {"actor_l2": 0.5}),
    ],
)  # fmt: skip
def test_the_papers_preset(flags, expected):
    settings = read(f"--preset paper {flags}")
    assert {name: getattr(settings, name) for name in expected} == expected
    if "--actor_l2" not in flags:
        assert read(flags).actor_l2 is None  # off by default


# Flag -> (a value that differs from the default, where its effect can be read off the config).
EFFECTS = {
    "trainer": ("TD3", lambda c: c.algo_class),
    "gamma": ("0.5", lambda c: c.gamma),
    "tau": ("0.5", lambda c: c.tau),
    "hidden_sizes": ("8 9", lambda c: c.module_settings()["hidden_sizes"]),
    "actor_lr": ("0.5", lambda c: c.actor_lr),
    "critic_lr": ("0.5", lambda c: c.critic_lr),
    "alpha_lr": ("0.5", lambda c: c.alpha_lr),
    "initial_alpha": ("0.5", lambda c: c.module_settings()["initial_alpha"]),
    "target_entropy": ("-0.5", lambda c: c.target_entropy),
    "huber_loss": ("", lambda c: c.huber_loss),
    "round_robin_weights": ("5", lambda c: c.replay_ratio),
    "learning_starts": ("5", lambda c: c.module_settings()["learning_starts"]),
    "train_batch_size": ("5", lambda c: c.total_train_batch_size),
    "buffer_size": ("5", lambda c: c.buffer_size),
    "rollout_fragment_length": ("5", lambda c: c.rollout_fragment_length),
    "timesteps_per_iteration": ("5", lambda c: c.timesteps_per_iteration),
    "total_timesteps": ("5", lambda c: c.total_timesteps),
    "horizon": ("5", lambda c: c.env_config.get("horizon")),
    "evaluation_interval": ("5", lambda c: c.evaluation_interval),
    "evaluation_num_episodes": ("5", lambda c: c.evaluation_duration),
    "metrics_smoothing_episodes": ("5", lambda c: c.metrics_num_episodes_for_smoothing),
    "num_sgd_iter": ("3", lambda c: c.num_sgd_iter),
    "whole_episodes": ("", lambda c: c.whole_episodes),
    "target_by_steps_sampled": ("", lambda c: c.target_by_steps_sampled),
    "actor_l2": ("0.5", lambda c: c.actor_l2),
    "preset": ("paper", lambda c: (c.actor_l2, c.huber_loss)),
    "num_learners": ("2", lambda c: (c.num_learners, c.train_batch_size_per_learner)),
    "num_gpus": ("1", lambda c: c.num_gpus_per_learner),
    "num_workers": ("2", lambda c: c.num_env_runners),
    "num_envs_per_worker": ("2", lambda c: c.num_envs_per_env_runner),
    "seed": ("5", lambda c: c.seed),
    "env": ("HalfCheetah-v5", lambda c: c.env),
    "buffer": ("nmer", lambda c: c.recipe),
    "knn_baseline": ("", lambda c: c.recipe),
    "naive_mixup_baseline": ("", lambda c: c.recipe),
    "noisy_replay_baseline": ("", lambda c: c.recipe),
    "custom_replay_buffer": ("True", lambda c: c.recipe),
    "s4rl_baseline": ("", lambda c: c.recipe),
    "ct_baseline": ("", lambda c: c.recipe),
    "prioritized_replay": ("", lambda c: c.prioritized_replay),
    "verbose": ("", lambda c: c.log_level),
}
OF_A_TRAINER = {
    "policy_delay": ("TD3", "5", lambda c: c.policy_delay),
    "target_noise": ("TD3", "0.5", lambda c: c.target_noise),
    "target_noise_clip": ("TD3", "0.7", lambda c: c.target_noise_clip),
    "exploration_noise": ("TD3", "0.5", lambda c: c.module_settings()["exploration"]),
    "ou_theta": ("DDPG", "0.5", lambda c: c.module_settings()["exploration"]),
    "ou_sigma": ("DDPG", "0.5", lambda c: c.module_settings()["exploration"]),
}
IN_REPLAY_SETTINGS = {
    "use_delta": ("--buffer nmer", "", "use_delta"),
    "furthest_neighbor": ("--buffer nmer", "5", "furthest_neighbor"),
    "interp_decay_rate": ("--buffer nmer", "0.5", "interp_decay_rate"),
    "interp_prio_update": ("--buffer nmer --prioritized_replay", "", "interp_prio_update"),
    "ct_fixed": ("--buffer ct", "", "ct_fixed"),
    "s4rl_view": ("--buffer s4rl", "switch", "s4rl_view"),
    "s4rl_num_views": ("--buffer s4rl", "3", "s4rl_num_views"),
    "noise_multiple": ("--buffer gaussian", "0.5", "noise_multiple"),
    "n_step": ("", "3", "n_step"),
    "kneighbors": ("--buffer nmer", "5", "kneighbors"),
    "mixup_alpha": ("--buffer nmer", "5", "mixup_alpha"),
    "smote_interpolation": ("--buffer nmer", "", "mixing_law"),
    "prob_interpolation": ("--buffer mixup", "0.5", "prob_interpolation"),
    "noise_std": ("--buffer gaussian", "0.5", "noise_std"),
    "kernel": ("-gp", "rbf", "kernel"),
    "matern_nu": ("-gp --kernel matern", "0.5", "matern_nu"),
    "use_ard": ("-gp --kernel rbf", "", "use_ard"),
    "composite_kernel": ("-gp --gpytorch", "", "composite_kernel"),
    "mean_type": ("-gp --gpytorch", "linear", "mean_type"),
    "normalize": ("-gp", "", "normalize"),
    "standardize_gpr_x": ("-gp --normalize", "", "standardize_gpr_x"),
    "gp_pca": ("-gp", "", "gp_pca"),
    "gp_pca_components": ("-gp --gp_pca", "3", "gp_pca_components"),
    "gpytorch": ("-gp", "", "gpytorch"),
    "use_botorch": ("-gp --gpytorch", "", "use_botorch"),
    "use_priors": ("-gp --gpytorch", "", "use_priors"),
    "est_lengthscales": ("-gp", "", "est_lengthscales"),
    "est_lengthscale_constant": ("-gp --est_lengthscales", "3", "est_lengthscale_constant"),
    "global_hyperparams": ("-gp", "", "global_hyperparams"),
    "per_output_hyperparams": ("-gp", "", "per_output_hyperparams"),
    "mc_hyper": ("-gp --global_hyperparams", "", "mc_hyper"),
    "train_size": ("-gp --single_model", "9", "train_size"),
    "retrain_interval": ("-gp --single_model", "9", "retrain_interval"),
    "warmstart_global": ("-gp --single_model", "", "warmstart_global"),
    "single_model": ("-gp", "", "single_model"),
    "multi_sample": ("-gp", "", "multi_sample"),
    "sample_gp_cov": ("-gp", "", "sample_gp_cov"),
    "weighted_updates": ("-gp", "", "weighted_updates"),
    "use_queue": ("-gp", "", "use_queue"),
    "queue_gb": ("-gp --use_queue", "2", "queue_gb"),
    "update_hyperparams": ("-gp --use_queue", "", "update_hyperparams"),
    "fp32": ("-gp", "", "fp32"),
    "cpu_only": ("-gp", "", "cpu_only"),
    "perform_holdout_eval": ("-gp", "", "perform_holdout_eval"),
    "holdout_split": ("-gp --perform_holdout_eval", "0.5", "holdout_split"),
    "use_importance_sampling": (
        "--buffer nmer --prioritized_replay",
        "",
        "use_importance_sampling",
    ),
    "prioritized_replay_alpha": ("--buffer per", "0.5", "per_alpha"),
    "prioritized_replay_beta": ("--buffer per", "0.5", "per_beta"),
    "final_prioritized_replay_beta": ("--buffer per", "0.5", "per_final_beta"),
}
# Seen in what a run does: tests/test_commands.py and tests/test_results.py.
ELSEWHERE = {
    *("no_checkpoint_buffer", "restore_path"),
    *("local_dir", "agent_name", "checkpoint_freq", "fresh", "local_mode", "num_cpus", "log_dir"),
    *("sleep_time", "wandb", "address"),
}
# With one choice, or the default spelt out, there is no other value to see an effect of.
ONE_VALUE = {"framework", "mixup_interpolation"}
# Selectors whose effect test_recipes_by_their_new_and_old_names shows.
SELECTORS = {"only_noise", "uniform_replay", "gaussian_process"}


@pytest.mark.parametrize("name", EFFECTS)
def test_a_flag_reaches_the_algorithm(name):
    value, look = EFFECTS[name]
    default, changed = (read(line) for line in ("", f"--{name} {value}"))
    before, after = (look(algorithm_config(s)) for s in (default, changed))
    assert before != after


@pytest.mark.parametrize("name", OF_A_TRAINER)
def test_a_flag_reaches_its_trainer_and_no_other(name):
    trainer, value, look = OF_A_TRAINER[name]
    default, changed = (
        read(line) for line in (f"--trainer {trainer}", f"--trainer {trainer} --{name} {value}")
    )
    assert look(algorithm_config(default)) != look(algorithm_config(changed))
    with pytest.raises(UsageError, match=f"--{name} concerns {trainer}, but the trainer is SAC"):
        read(f"--{name} {value}")


@pytest.mark.parametrize(
    ("trainer", "expected"),
    [
        ("SAC", {"hidden_sizes": (256, 256), "actor_lr": 3e-4, "critic_lr": 3e-4, "tau": 5e-3, "buffer_size": 1_000_000}),
        ("TD3", {"hidden_sizes": (400, 300), "actor_lr": 1e-3, "critic_lr": 1e-3, "tau": 5e-3, "policy_delay": 2, "target_noise": 0.2, "target_noise_clip": 0.5, "exploration": ("gaussian", 0.1)}),
        ("DDPG", {"hidden_sizes": (400, 300), "actor_lr": 5e-4, "critic_lr": 5e-4, "tau": 2e-3, "buffer_size": 50_000, "exploration": ("ou", 0.15, 0.2), "critic_count": 1, "policy_delay": 1, "target_noise": 0.0}),
    ],
)  # fmt: skip
def test_trainers_have_the_settings_of_the_spec_from_flags_and_from_python(trainer, expected):
    settings = read(f"--trainer {trainer}")
    from_flags = algorithm_config(settings)
    from_python = config_class(trainer)()
    for name, value in expected.items():
        assert getattr(from_flags, name) == value
        assert getattr(from_python, name) == value


@pytest.mark.parametrize("name", IN_REPLAY_SETTINGS)
def test_a_flag_reaches_the_recipe(name):
    recipe, value, setting = IN_REPLAY_SETTINGS[name]
    before, after = (replay_settings(read(line)) for line in (recipe, f"{recipe} --{name} {value}"))
    assert before.get(setting) != after.get(setting)


def test_the_gaussian_process_has_the_numbers_of_the_spec():
    settings = read("-gp")
    assert (settings.kneighbors, settings.kernel, settings.mean_type) == (50, "rq", "zero")
    assert read("--buffer nmer").kneighbors == 10
    fitted = replay_settings(read("-gp --single_model --kernel matern --gp_pca -batch 32"))
    expected = {
        "train_size": 1000,
        "retrain_interval": 1000,
        "matern_nu": 2.5,
        "gp_pca_components": 2,
        "fit_batch": 32,
    }
    assert {name: fitted[name] for name in expected} == expected
    estimated = replay_settings(read("-gp --est_lengthscales --perform_holdout_eval"))
    assert (estimated["est_lengthscale_constant"], estimated["holdout_split"]) == (2.0, 0.2)
    # What nothing reads is not among a run's settings.
    assert read("-gp").train_size is None
    assert "train_size" not in read("-gp").to_dict()


RECOMMENDED = (
    "--gpytorch --global_hyperparams --mc_hyper --warmstart_global --use_delta --normalize"
)


@pytest.mark.parametrize(
    ("flags", "spelt_out"),
    [
        ("--buffer bier", f"-gp -knn 20 --kernel rbf {RECOMMENDED}"),
        ("--buffer bier -gp", "-gp"),
        ("--buffer bier --kernel rq -knn 7", f"-gp -knn 7 --kernel rq {RECOMMENDED}"),
        ("--buffer bier --retrain_interval 9", f"-gp -knn 20 --kernel rbf {RECOMMENDED} --retrain_interval 9"),
        (
            "--buffer bier --est_lengthscales",
            "-gp -knn 20 --kernel rbf --est_lengthscales --use_delta --normalize",
        ),
        (
            "--buffer bier --single_model",
            "-gp -knn 20 --kernel rbf --single_model --gpytorch --warmstart_global --use_delta --normalize",
        ),
        (
            "--buffer bier --use_queue --update_hyperparams",
            "-gp -knn 20 --kernel rbf --use_queue --update_hyperparams --gpytorch --use_delta --normalize",
        ),
        (
            "--buffer bier --train_size 50",
            "-gp -knn 20 --kernel rbf --gpytorch --global_hyperparams --train_size 50 --warmstart_global "
            "--use_delta --normalize",
        ),
    ],
)  # fmt: skip
def test_bier_alone_stands_for_the_recommended_flags_and_gives_way_to_others(flags, spelt_out):
    assert read(flags) == read(spelt_out)


@pytest.mark.parametrize(
    ("off", "left"),
    [
        ("normalize", {"gpytorch", "global_hyperparams", "mc_hyper", "warmstart_global", "use_delta"}),
        ("global_hyperparams", {"gpytorch", "use_delta", "normalize"}),
        ("gpytorch", {"global_hyperparams", "mc_hyper", "warmstart_global", "use_delta", "normalize"}),
    ],
)  # fmt: skip
def test_a_file_switches_off_what_is_recommended(tmp_path, off, left):
    file = tmp_path / "c.json"
    file.write_text(json.dumps({"buffer": "bier", off: False}))
    settings = read(f"--config {file}")
    names = {word.strip("-") for word in RECOMMENDED.split()}
    assert {name for name in names if getattr(settings, name)} == left


def test_no_flag_is_without_a_test_of_its_effect():
    covered = (
        set(EFFECTS)
        | set(OF_A_TRAINER)
        | set(IN_REPLAY_SETTINGS)
        | ELSEWHERE
        | ONE_VALUE
        | SELECTORS
    )
    assert {f.name for f in dataclasses.fields(Settings)} == covered


def test_help_names_every_flag_and_every_recipe():
    text = build_parser().format_help()
    assert all(f"--{f.name}" in text for f in dataclasses.fields(Settings))
    assert all(name in text for name in CATALOG)


def test_configs_hold_settings_that_exist():
    names = {f.name for f in dataclasses.fields(Settings)}
    tables = {file.name: json.loads(file.read_text()) for file in CONFIGS.glob("*.json")}
    del tables["behaviour.json"]  # tests/test_families.py holds these two kinds
    tables = {file: table for file, table in tables.items() if "env_name" not in table}
    paper = tables.pop("presets.json")["paper"]
    penalties = paper.pop("actor_l2 of SAC")
    for file, table in {**tables, "presets.json": paper}.items():
        for key, values in table.items():
            assert set(values) <= names, (file, key)
    assert set(penalties) <= set(tables["environments.json"])
    environments = json.loads((CONFIGS / "environments.json").read_text())
    assert set(MUJOCO) - {"Pusher"} <= set(environments)
    recipes = set(CATALOG) | {"prioritized", "gaussian_process"}
    assert recipes == set(json.loads((CONFIGS / "recipes.json").read_text()))
