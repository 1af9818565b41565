"""Reads the demo's table with Spark: checks that each record is in it once, and summarizes the flights."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from rich.table import Table

from headrace.lake.delta.delta_table import LoadTable

ORIGINS = ("EWR", "JFK", "LGA")
COLORS = ("#0b6e99", "#d9730d", "#6940a5")
LATE_MINUTES = 15
FLIGHTS_MIN = 30


class PartitionCheck(NamedTuple):
    """One partition of the topic as it is in the table: `rows` == `distinct` == `last` + 1 means exactly once."""

    partition: int
    rows: int
    distinct: int
    last: int

    @property
    def is_exact(self) -> bool:
        return self.rows == self.distinct == self.last + 1


class DelayRow(NamedTuple):
    """Mean departure delay in minutes at one scheduled hour (local time), by airport; None where nothing left."""

    hour: int
    minutes: tuple[float | None, ...]


class CarrierRow(NamedTuple):
    """The flights of one carrier and how many of them never departed."""

    carrier: str
    flights: int
    cancelled: int

    @property
    def share(self) -> float:
        return self.cancelled / self.flights


def read_table(spark: SparkSession, table: Path) -> DataFrame:
    """The newest version of a Delta table: Spark reads the files that its log names."""
    snapshot = LoadTable.open(table)
    assert snapshot is not None, f"the loads made {table}"
    return spark.read.parquet(*map(str, snapshot.files))


def check_partitions(rows: DataFrame) -> list[PartitionCheck]:
    """Count rows and distinct offsets of each partition."""
    counted = rows.groupBy("partition").agg(
        F.count("*").alias("rows"), F.countDistinct("offset").alias("distinct"), F.max("offset").alias("last")
    )
    return sorted(PartitionCheck(*row) for row in counted.collect())


def delays_by_hour(rows: DataFrame) -> list[DelayRow]:
    """Mean departure delay by scheduled hour and airport, where enough flights departed to call it one."""
    mean = F.when(F.count("dep_delay") >= FLIGHTS_MIN, F.avg("dep_delay"))
    by_hour = rows.where("dep_delay IS NOT NULL").groupBy("hour").pivot("origin", list(ORIGINS)).agg(mean)
    return sorted(DelayRow(row["hour"], tuple(row[origin] for origin in ORIGINS)) for row in by_hour.collect())


def cancellations(rows: DataFrame) -> list[CarrierRow]:
    """Flights without a departure time, by carrier, the least reliable first."""
    counted = rows.groupBy("carrier").agg(F.count("*"), F.count_if(F.col("dep_time").isNull()))
    return sorted((CarrierRow(*row) for row in counted.collect()), key=lambda row: row.share, reverse=True)


def delay_table(delays: Sequence[DelayRow]) -> Table:
    """Minutes by hour and airport, late ones in red."""
    table = Table(title="Mean departure delay, minutes", title_justify="left")
    table.add_column("hour", justify="right")
    for origin in ORIGINS:
        table.add_column(origin, justify="right")
    for hour, minutes in delays:
        table.add_row(f"{hour:02d}:00", *map(_minutes, minutes))
    return table


def carrier_table(carriers: Sequence[CarrierRow]) -> Table:
    """Flights and cancellations by carrier."""
    table = Table(title="Cancelled flights by carrier", title_justify="left")
    table.add_column("carrier")
    for heading in ("flights", "cancelled", "share"):
        table.add_column(heading, justify="right")
    for row in carriers:
        table.add_row(row.carrier, f"{row.flights:,}", f"{row.cancelled:,}", f"{row.share:.1%}")
    return table


def _minutes(value: float | None) -> str:
    if value is None:
        return ""
    return f"[red]{value:.1f}[/red]" if value >= LATE_MINUTES else f"{value:.1f}"


def draw_chart(delays: Sequence[DelayRow], carriers: Sequence[CarrierRow], file: Path) -> None:
    """Both results side by side, as a PNG."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    plt.rcParams.update({"axes.spines.top": False, "axes.spines.right": False, "font.size": 10})
    figure, (left, right) = plt.subplots(1, 2, figsize=(12, 4.8), width_ratios=(3, 2), layout="constrained")
    for index, (origin, color) in enumerate(zip(ORIGINS, COLORS, strict=True)):
        points = [(row.hour, row.minutes[index]) for row in delays if row.minutes[index] is not None]
        left.plot(*zip(*points, strict=True), color=color, marker="o", markersize=4, label=origin)
    left.set(title="Departure delay by scheduled hour", xlabel="hour of day", ylabel="minutes, mean")
    left.set_xticks(range(5, 24, 3))
    left.axhline(0, color="#999999", linewidth=0.8)
    left.legend(frameon=False)
    worst_last = list(reversed(carriers))
    right.barh([row.carrier for row in worst_last], [100 * row.share for row in worst_last], color=COLORS[0])
    right.set(title="Cancelled flights by carrier", xlabel="percent of its flights")
    figure.suptitle("Flights from New York City, 2013: read from a headrace topic by Spark", fontweight="bold")
    figure.savefig(file, dpi=140)
    plt.close(figure)
