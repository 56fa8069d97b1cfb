"""What inject() did."""

from collections import Counter
from dataclasses import dataclass, field


@dataclass
class Report:
    """Of each module by its name: the recipe that replaced its forward or processor, or why nothing
    did. str() of it is a summary."""

    level: str
    components: list = field(default_factory=list)  # of a pipeline, what was walked
    replaced: dict = field(default_factory=dict)
    skipped: dict = field(default_factory=dict)

    def counts(self) -> dict:
        """How many modules each recipe replaced."""
        return dict(Counter(self.replaced.values()))

    def __str__(self):
        lines = [f"ebb_kernels: {len(self.replaced)} replaced (level {self.level})"]
        if self.components:
            lines.append(f"  components: {', '.join(self.components)}")
        lines += [f"  {n:5} {name}" for name, n in sorted(self.counts().items())]
        lines += [f"  {n:5} left: {why}" for why, n in Counter(self.skipped.values()).items()]
        return "\n".join(lines)
