"""The formulas of FedRo (Allouah et al., ICML 2024), one function each.

Symbols: n clients, b of them Byzantine, β = b/n, n̂ sampled each round, b̂ tolerated each round,
K local steps, T rounds, p the wanted probability that no round has more than b̂ Byzantine clients.
docs/paper-notes.md lists where the paper contradicts itself and which version is used here.
"""

import math
from dataclasses import dataclass

from fedro.planning.tails import deviance


def divergence(alpha: float, beta: float) -> float:
    """D(α,β) = α·ln(α/β) + (1−α)·ln((1−α)/(1−β)), with its limits at α = 0 and 1."""
    if not (0 <= alpha <= 1 and 0 <= beta <= 1):
        raise ValueError(f"divergence of alpha={alpha}, beta={beta}: both must be in [0, 1]")
    if alpha == beta:
        return 0.0
    if beta in (0.0, 1.0):
        return math.inf
    return deviance(alpha, beta) + deviance(1 - alpha, 1 - beta)  # exact also where α ≈ β


def log_budget(rounds: float, confidence: float) -> float:
    """ln(T/(1−p)): the least n̂·D for which the union bound over T rounds is at most 1−p."""
    return math.log(rounds) - math.log1p(-confidence) if confidence < 1 else math.inf


def lemma1_holds(
    sampled: int, tolerated: int, clients: int, byzantine: int, rounds: int, confidence: float
) -> bool:
    """Lemma 1 as printed: β < b̂/n̂ < ½ and n̂ ≥ min{n, ln(T/(1−p))/D(b̂/n̂, β)}."""
    alpha, beta = tolerated / sampled, byzantine / clients
    if not (beta < alpha and 2 * tolerated < sampled):
        return False
    enough = sampled * divergence(alpha, beta) >= log_budget(rounds, confidence)
    return sampled >= clients or enough


def sample_threshold(beta: float, rounds: int, confidence: float) -> float:
    """n̂_th = ⌈ln(4T/(1−p))/D(½,β)⌉ + 2, before it is clamped to n (Lemma 2)."""
    return _ceil(log_budget(4 * rounds, confidence) / divergence(0.5, beta)) + 2


def optimal_threshold(beta: float, rounds: int, confidence: float) -> float:
    """n̂_opt = ⌈max{(½−β)⁻², 3/β}·ln(4T/(1−p))⌉ + 2, before it is clamped to n (Lemma 4)."""
    factor = max((0.5 - beta) ** -2, 3 / beta)
    return _ceil(factor * log_budget(4 * rounds, confidence)) + 2


def _ceil(value: float) -> float:
    return math.ceil(value) if math.isfinite(value) else value


def impossibility_bound(beta: float, rounds: int, confidence: float) -> float:
    """ln(T/(3(1−p)))/(D(½,β)+2) − 1: a smaller n̂ fails with probability above 1−p (Lemma 3).

    The lemma holds for p ≥ ½ and n large enough. A value of 0 or less excludes no n̂.
    """
    if confidence < 0.5:
        raise ValueError(f"confidence={confidence}: the impossibility needs confidence ≥ 0.5")
    return log_budget(rounds / 3, confidence) / (divergence(0.5, beta) + 2) - 1


def tail_upper(alpha: float, beta: float, sampled: int) -> float:
    """P[X ≥ α·n̂] ≤ exp(−n̂·D(α,β)) for α > β, X hypergeometric (Hoeffding, Chvátal)."""
    return math.exp(-sampled * divergence(alpha, beta)) if alpha > beta else 1.0


def tail_lower(alpha: float, beta: float, sampled: int, clients: int) -> float:
    """P[X ≥ α·n̂] ≥ exp(−n̂·D)/√(8n̂α(1−α)) − (n̂−1)/(n−1) for integer α·n̂ and α in (β, 1)."""
    if not beta < alpha < 1:
        raise ValueError(f"alpha={alpha}: must be in (beta, 1) = ({beta}, 1)")
    binomial = math.exp(-sampled * divergence(alpha, beta))
    binomial /= math.sqrt(8 * sampled * alpha * (1 - alpha))
    return binomial - ((sampled - 1) / (clients - 1) if clients > 1 else 0.0)


@dataclass(frozen=True, kw_only=True)
class ConvergenceProblem:
    """The quantities in the convergence bounds, apart from the step sizes."""

    clients: int
    byzantine: int
    sampled: int
    tolerated: int
    rounds: int
    local_steps: int
    smoothness: float  # L
    noise: float  # σ² of a stochastic gradient
    heterogeneity: float  # ζ² between honest clients' gradients
    initial_gap: float  # Δ₀ ≥ F(x₀) − min F
    kappa: float

    @property
    def absent(self) -> float:
        """ρ = 1 − (n̂−b̂)/(n−b): the share of the honest clients that a round may leave out."""
        return 1 - (self.sampled - self.tolerated) / (self.clients - self.byzantine)

    @property
    def spread(self) -> float:
        """σ²/K + 6ρζ²: the variance that averaging n̂ clients divides by n̂."""
        return self.noise / self.local_steps + 6 * self.absent * self.heterogeneity

    @property
    def byzantine_error(self) -> float:
        """165κ(σ²/K + 6ζ²): the only term that does not vanish as T grows."""
        return 165 * self.kappa * (self.noise / self.local_steps + 6 * self.heterogeneity)


def theorem1_bound(problem: ConvergenceProblem, client_lr: float, server_lr: float = 1.0) -> float:
    """Theorem 1: a bound on the mean of ‖∇F(x_t)‖², if the step sizes are small enough."""
    q, k, lr = problem, problem.local_steps, client_lr * server_lr
    limit, joint = 1 / (16 * q.smoothness * k), 1 / (36 * q.smoothness * k)
    if client_lr > limit or lr > joint * (1 + 1e-12):
        raise ValueError(
            f"client_lr={client_lr}, server_lr={server_lr}: Theorem 1 needs client_lr ≤ 1/(16LK) = "
            f"{limit:.6g} and client_lr·server_lr ≤ 1/(36LK) = {joint:.6g}"
        )
    start = 5 * q.initial_gap / (q.rounds * k * lr)
    sampling = 20 * q.smoothness * k * lr / q.sampled * q.spread
    drift = client_lr**2 * q.smoothness**2 * (k - 1)
    local = drift * (10 / 3 * q.noise + 40 / 3 * k * q.heterogeneity)
    return start + sampling + local + q.byzantine_error


def corollary_step(problem: ConvergenceProblem) -> float:
    """The corollary's γ_c for γ_s = 1. Its third candidate does not exist if K = 1."""
    q, k = problem, problem.local_steps
    candidates = [1 / (36 * q.smoothness * k)]
    if q.spread > 0:
        inner = q.sampled * q.initial_gap / (q.smoothness * q.rounds * q.spread)
        candidates.append(math.sqrt(inner) / (2 * k))
    local = 2 * k * (k - 1) * q.rounds * q.smoothness**2 * (q.noise + 4 * k * q.heterogeneity)
    if local > 0:
        candidates.append(math.cbrt(3 * q.initial_gap / local))
    return min(candidates)


def corollary_bound(problem: ConvergenceProblem, *, as_printed: bool = False) -> float:
    """The corollary's bound at `corollary_step`.

    The paper prints 8/3 under the cube root, but its own derivation gives 2000/3 (a factor 5 gets
    lost). The printed bound is false for many problems; `as_printed` is there for comparison.
    """
    q, k = problem, problem.local_steps
    factor = 8 / 3 if as_printed else 2000 / 3
    noise = q.noise / k + 4 * q.heterogeneity
    local = factor * (1 - 1 / k) * q.initial_gap**2 * q.smoothness**2 * noise / q.rounds**2
    sampling = 20 * math.sqrt(q.smoothness * q.initial_gap * q.spread / (q.sampled * q.rounds))
    start = 180 * q.smoothness * q.initial_gap / q.rounds
    return sampling + q.byzantine_error + math.cbrt(local) + start


def drift_bound(local_steps: int, client_lr: float, noise: float, heterogeneity: float) -> float:
    """E (1/|H|)Σ‖x_i − x̄‖² ≤ 3Kσ²γ_c² + 18K²γ_c²ζ² after K local steps of honest clients."""
    return client_lr**2 * (3 * local_steps * noise + 18 * local_steps**2 * heterogeneity)


def aggregation_error_bound(kappa: float, drift: float) -> float:
    """E‖A − mean of the honest updates‖² ≤ κ · drift."""
    return kappa * drift
