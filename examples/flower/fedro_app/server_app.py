"""The server: FedRo with the plan for this federation, and a run folder."""

from datetime import datetime
from pathlib import Path

from flwr.app import ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp

from fedro.common.checks import count, number
from fedro.flower import FedRo
from fedro_app.attackers import attacks_of
from fedro_app.task import log, plan_of, setup_of, with_clients, yes_or_no

SIMULATE_MORE = "flwr run … --federation-config 'num-supernodes=10'"
app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Train for the remaining rounds, and log where the model is."""
    config = with_clients(context.run_config, len(list(grid.get_node_ids())))
    plan, setup = plan_of(config), setup_of(config)
    timeout = number("timeout", config["timeout"], "seconds > 0", lambda x: x > 0)
    attackers = attacks_of(config, plan.clients)
    if not plan.byzantine and config["byzantine"] != context.run_config["byzantine"]:
        text = "With %d nodes no Byzantine client can be tolerated. Simulate more nodes: %s"
        log.warning(text, plan.clients, SIMULATE_MORE)
    text = "%d clients: the plan is for up to %d Byzantine ones, %d attack"
    log.info(text, plan.clients, plan.byzantine, len(attackers))
    folder, e = folder_of(str(config["folder"])), setup.experiment
    strategy = FedRo(
        plan=plan,
        server_lr=e.server_lr,
        client_lr=e.as_dict()["client_lr"],
        local_steps=e.local_steps,
        folder=folder,
        resume=yes_or_no(config, "resume"),
        keep_checkpoints=count("keep-checkpoints", config["keep-checkpoints"], 2),
        evaluate_every=e.evaluate_every,
        evaluate_clients=None if config["evaluate-every"] else 0,
        online_wait=number("online-wait", config["online-wait"], "seconds ≥ 0", lambda x: x >= 0),
        quarantine=count("quarantine", config["quarantine"], 0) or None,
        exclude=str(config["exclude"]),
        fdr=number("fdr", config["fdr"], "0 < fdr < 1", lambda x: 0 < x < 1),
        quorum=count("quorum", config["quorum"], 0) or None,
        quorum_after=float(config["quorum-after"]) if config["quorum"] else None,
        max_void_rounds=count("max-void-rounds", config["max-void-rounds"], 1),
        metrics_port=count("metrics-port", config["metrics-port"], 0) or None,
        flat=True,
    )
    start = ArrayRecord(setup.build().state_dict())
    strategy.start(grid, start, num_rounds=e.rounds, timeout=timeout)
    log.info("The model is in %s. To see the run: fedro report %s", folder, folder)
    log.info("To see who lies: fedro suspects %s", folder)


def folder_of(text: str) -> Path:
    """The run folder, or a new one if none is given."""
    return Path(text or f"runs/flower-{datetime.now():%Y%m%d-%H%M%S}").expanduser().absolute()
