"""A model of Hadoop's ``DecayRpcScheduler``. Tests compare the proxy's decay scheduler with it."""


class HadoopDecay:
    """Computes costs, levels and average response times as Hadoop does. Response times are in whole milliseconds."""

    def __init__(
        self, levels: int, factor: float, thresholds: list[float], times_ms: list[int], service: set[str]
    ) -> None:
        self.levels = levels
        self.factor = factor
        self.thresholds = thresholds
        self.times_ms = times_ms
        self.service = service
        self.decayed: dict[str, int] = {}
        self.raw: dict[str, int] = {}
        self.total_decayed = 0
        self.total_raw = 0
        self.service_decayed = 0
        self.service_raw = 0
        self.cache: dict[str, int] = {}
        self.count = [0] * levels
        self.time_ms = [0] * levels
        self.average_ms = [0.0] * levels

    def add(self, identity: str, cost: int) -> None:
        if identity not in self.decayed:
            self.decayed[identity] = 0
            self.raw[identity] = 0
        if identity in self.service:
            self.service_decayed += cost
            self.service_raw += cost
        else:
            self.total_decayed += cost
            self.total_raw += cost
        self.decayed[identity] += cost
        self.raw[identity] += cost

    def add_response_time(self, level: int, time_ms: int) -> None:
        self.count[level] += 1
        self.time_ms[level] += time_ms

    def sweep(self) -> None:
        total_decayed = total_raw = service_decayed = service_raw = 0
        for identity in list(self.decayed):
            following = int(self.decayed[identity] * self.factor)
            if identity in self.service:
                service_raw += self.raw[identity]
                service_decayed += following
            else:
                total_raw += self.raw[identity]
                total_decayed += following
            self.decayed[identity] = following
            if following == 0:
                del self.decayed[identity]
                del self.raw[identity]
        self.total_decayed = total_decayed
        self.total_raw = total_raw
        self.service_decayed = service_decayed
        self.service_raw = service_raw
        self.cache = {identity: self.level_of(identity, self.decayed[identity]) for identity in self.decayed}
        for level in range(self.levels):
            mean = self.time_ms[level] / self.count[level] if self.count[level] else 0.0
            last = self.average_ms[level]
            if last > 0.0001 or mean > 0.0001:
                self.average_ms[level] = self.factor * last + mean
            else:
                self.average_ms[level] = 0.0
        self.count = [0] * self.levels
        self.time_ms = [0] * self.levels

    def level_of(self, identity: str, cost: int) -> int:
        if identity in self.service:
            return 0
        share = cost / self.total_decayed if self.total_decayed > 0 else 0.0
        for level in range(self.levels - 1, 0, -1):
            if share >= self.thresholds[level - 1]:
                return level
        return 0

    def level(self, identity: str) -> int:
        if identity in self.cache:
            return self.cache[identity]
        return self.level_of(identity, self.decayed.get(identity, 0))

    def backs_off(self, level: int) -> bool:
        return any(self.average_ms[above] > self.times_ms[above] for above in range(level + 1))
