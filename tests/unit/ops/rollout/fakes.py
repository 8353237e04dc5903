"""A world for rollouts: a clock that jumps, numbers set by hand, a target in memory that may crash its runner."""

from contextlib import contextmanager

from app.config.rollout import parse_plan
from app.ops.rollout.runner import Runner
from app.ops.rollout.signals import Unreachable
from app.ops.rollout.state import Settings
from app.ops.rollout.target import Held, Snapshot, Stale


class Crash(BaseException):
    """The runner's process is killed here."""


def plan(**changes):
    raw = {
        "name": "v2",
        "profile": "chat",
        "stable": "old",
        "canary": "new",
        "steps": [{"share": 10, "seconds": 60}, {"share": 50, "seconds": 60}],
        "gates": [{"gate": "errors", "bound": 0.02}, {"gate": "latencyP95", "bound": 1.2, "relative": True}],
        "pollSeconds": 10,
        "holdSeconds": 120,
        "startSeconds": 300,
    }
    return parse_plan(raw | changes, "plan")


def blue_green(**changes):
    return plan(blueGreen={"old": "model-a", "new": "model-b", "watchSeconds": 30} | changes)


def scaling(least, most=None):
    return {"min_replicas": least, "max_replicas": most or max(1, least), "initial_replicas": least}


class World:
    """Clock, signals and target at once. ``crash_at``: the number of the effect after which the runner dies."""

    def __init__(self, *, weights=None, replicas=None, atomic=True, crash_at=None):
        self.time = 1000.0
        self.settings = Settings(weights=weights or {"old": 1.0, "new": 0.0}, replicas=replicas or {})
        self.state = None
        self.events = []
        self.history = [self.settings]
        self.atomic = atomic
        self.crash_at = crash_at
        self.effects = 0
        self.holder = None
        self.version = 0
        self.count = 1000
        self.counts = {}
        self.values = {"errors": 0.0, "latencyP95": 100.0}
        self.asked = []
        self.down = False
        self.starting = {}
        self.script = []
        self.said = []

    def run(self, wanted=None, **options):
        return Runner(wanted or plan(), self, self, self, self.said.append).run(**options)

    def at(self, seconds, change):
        """Do something when the clock reaches so many seconds since the start."""
        self.script.append((1000.0 + seconds, change))
        self.script.sort(key=lambda entry: entry[0])

    def effect(self):
        self.effects += 1
        if self.crash_at == self.effects:
            raise Crash

    # --- clock

    def now(self):
        return self.time

    def sleep(self, seconds):
        self.time += seconds
        while self.script and self.script[0][0] <= self.time:
            self.script.pop(0)[1]()
        self.effect()

    # --- signals

    def measure(self, judgement, scope):
        self.asked.append((judgement.title, scope))
        if self.down:
            raise Unreachable("Prometheus does not answer")
        return self.values.get((judgement.title, scope.variant), self.values.get(judgement.title))

    def basis(self, judgement, scope):
        if self.down:
            raise Unreachable("Prometheus does not answer")
        return self.counts.get(judgement.title, self.count)

    # --- target

    @contextmanager
    def lock(self):
        if self.holder:
            raise Held("another runner")
        yield

    def renew(self):
        self.effect()

    def read(self, wanted):
        return Snapshot(self.settings, self.state, dict(self.starting), self.version)

    def write(self, snapshot, state):
        if snapshot.token != self.version:
            raise Stale
        self.version += 1
        self.state = state
        if not self.atomic:
            self.effect()
        if not self.settings.equals(state.now):
            self.settings = state.now
            self.history.append(state.now)
        self.effect()

    def announce(self, state, entry):
        self.events.append((entry.number, entry.reason))
        self.effect()

    # --- what tests look at

    @property
    def shares(self):
        """Shares of the canary, in the order in which they came into force."""
        return [round(100 * found.weights["new"] / sum(found.weights.values()), 6) for found in self.history]

    @property
    def reasons(self):
        """Reasons of the history."""
        return [entry.reason for entry in self.state.log]


def green_world(old=2, **options):
    """Return a world with two model applications, of which the second sleeps."""
    return World(replicas={"model-a": scaling(old, 4), "model-b": scaling(0)}, **options)
