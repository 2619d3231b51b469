"""The paper's statements, measured on the synthetic problem where σ, ζ and L are known.

python benchmarks/theory.py
"""

import numpy as np

from fedro.data import spread
from fedro.planning import theory
from fedro.simulation.experiment import Experiment
from fedro.simulation.loop import run
from fedro.simulation.preparation import prepare

ATTACKS = ("sign_flip", "foe(tau=2.0)", "alie(z=1.5)", "mimic")


def problem(sigma, zeta, **options):
    defaults = {
        "clients": 30,
        "byzantine": 6,
        "attack": "alie(z=1.5)",
        "rule": "trimmed_mean",
        "sampled": 15,
        "tolerated": 6,
        "rounds": 60,
        "local_steps": 5,
        "batch_size": 1,
        "client_lr": 1 / 80,
        "evaluate_every": 1000,
    }
    text = f"synthetic(dim=10, samples=40, sigma={sigma}, zeta={zeta})"
    return Experiment(dataset=text, **{**defaults, **options})


def inequalities():
    """The largest ratio of what was measured to its bound, over all rounds."""
    print("drift lemma and κ inequality: largest measured/bound over 60 rounds, four attacks")
    print("   σ    ζ    K   drift   trimmed mean   nnm | trimmed mean   plain averaging (κ of TM)")
    for sigma, zeta in ((1.0, 0.1), (1.0, 1.0), (0.1, 1.0)):
        for steps in (1, 5, 20):
            drifts, seen = [], {"trimmed_mean": [], "nnm | trimmed_mean": [], "mean": []}
            for attack in ATTACKS:
                for rule, kappas in seen.items():
                    options = {"attack": attack, "rule": rule, "local_steps": steps}
                    setup = prepare(problem(sigma, zeta, client_lr=1 / (16 * steps), **options))
                    centers = setup.federation.problem["centers"]
                    honest = spread(centers[~setup.byzantine]) ** 2
                    bound = theory.drift_bound(steps, 1 / (16 * steps), sigma**2, honest)
                    for done in run(setup):
                        drifts.append(done.variance / bound)
                        proved = done.kappa_proved or 2.0  # r = 6/(15 − 12), that of trimmed mean
                        kappas.append(done.kappa_seen / proved)
            ratios = "".join(f"{max(kappas):18.3f}" for kappas in seen.values())
            print(f"{sigma:4.1f} {zeta:4.1f} {steps:4d} {max(drifts):7.3f} {ratios}")


def final_error(sigma, zeta, **options):
    """‖x − x*‖² over the last 20 of 60 rounds: mean and standard error over 5 seeds."""
    errors = []
    for seed in range(5):
        setup = prepare(problem(sigma, zeta, seed=seed, **options))
        centers = setup.federation.problem["centers"][~setup.byzantine].double()
        models = [done.state.model.double() for done in run(setup)][-20:]
        errors.append(np.mean([float((x - centers.mean(0)).square().sum()) for x in models]))
    return f"{np.mean(errors):8.4f} ± {np.std(errors, ddof=1) / 5**0.5:.4f}"


def effects():
    print("\nfinal error ‖x − x*‖² under ALIE (z = 1.5) with K·γ_c = 0.5, as K grows")
    for name, sigma, zeta in (("σ² ≫ ζ²", 2.0, 0.05), ("ζ² ≫ σ²", 0.05, 2.0)):
        for steps in (1, 2, 4, 8, 16):
            error = final_error(sigma, zeta, local_steps=steps, client_lr=0.5 / steps)
            print(f"  {name}  K = {steps:2d}  {error}")
    print("\nfinal error with all 15 clients sampled, as b̂/n̂ falls (σ² ≫ ζ²)")
    for bad in (6, 5, 4, 3, 2, 1, 0):
        options = {"clients": 15, "byzantine": bad, "tolerated": bad, "client_lr": 0.1}
        print(f"  b̂/n̂ = {bad}/15  {final_error(2.0, 0.05, **options)}")


if __name__ == "__main__":
    inequalities()
    effects()
