"""Deep deterministic policy gradient (Lillicrap et al. 2015, arXiv 1509.02971)."""

from interreplay.algorithms.td3 import TD3, TD3Config


class DDPG(TD3):
    """DDPG as an RLlib `Algorithm`."""

    @classmethod
    def get_default_config(cls) -> "DDPGConfig":
        return DDPGConfig()


class DDPGConfig(TD3Config):
    """TD3 with one critic, no delay, no target noise, and Ornstein-Uhlenbeck exploration."""

    def __init__(self, algo_class: type | None = None) -> None:
        super().__init__(algo_class=algo_class or DDPG)
        self.actor_lr = 5e-4
        self.critic_lr = 5e-4
        self.tau = 2e-3
        self.buffer_size = 50_000
        self.critic_count = 1
        self.policy_delay = 1
        self.target_noise = 0.0
        self.exploration = ("ou", 0.15, 0.2)
