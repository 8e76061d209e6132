"""Parts of the dashboards in ``deploy/grafana``: panels, queries and variables, in the types of Grafana's own SDK."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar

from grafana_foundation_sdk.builders import common as common_builders
from grafana_foundation_sdk.builders import dashboard as builders
from grafana_foundation_sdk.builders import prometheus, stat, statetimeline, table, timeseries
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.models import common
from grafana_foundation_sdk.models import dashboard as models
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

DATASOURCE: Final = models.DataSourceRef(type_val="prometheus", uid="${datasource}")
TAG: Final = "kafka-quota-proxy"
CLIENT_UID: Final = "kafka-quota-proxy-client"
BUILD: Final = "kafka_quota_proxy_build_info"
# The labels of the series that are shown, as users select them.
CLIENT: Final = ('user=~"$user"', 'client_id=~"$client_id"')
SELECTED: Final = 'job=~"$job", instance=~"$instance"'
_OPENS_CLIENT: Final = {
    "title": "Open the dashboard of this client",
    "url": f"/d/{CLIENT_UID}?${{datasource:queryparam}}&${{job:queryparam}}&${{instance:queryparam}}"
    "&var-user=${__data.fields.user:percentencode}&var-client_id=${__data.fields.client_id:percentencode}&${__url_time_range}",
}

P = TypeVar("P", timeseries.Panel, stat.Panel, statetimeline.Panel, table.Panel)


class Query(NamedTuple):
    """A query of Prometheus. In a legend, ``{{name}}`` is the value of a label. A limit is drawn as a dashed line."""

    expr: str
    legend: str = ""
    is_limit: bool = False


class Column(NamedTuple):
    """A column of a table with the values of a query. They have a colour from ``warn_at`` on."""

    title: str
    expr: str
    unit: str = "short"
    warn_at: float | None = None


def own(name: str, *labels: str) -> str:
    """Return the selector of a metric of this program, for the selected jobs and proxies."""
    return selector(f"kafka_quota_proxy_{name}", *labels)


def selector(name: str, *labels: str) -> str:
    """Return the selector of a metric, for the selected jobs and proxies."""
    return f"{name}{{{', '.join((SELECTED, *labels))}}}"


def rate(name: str, *labels: str) -> str:
    """Return the rate per second of a counter of this program."""
    return f"rate({own(name, *labels)}[$__rate_interval])"


def highest_rate(name: str, *labels: str) -> str:
    """Return the rate of a counter for each kind of quota and client, at the proxy where it is highest.

    Limits hold at each proxy, so a sum over proxies says nothing about them.
    """
    return f"max by (kind, user, client_id) (sum by (instance, kind, user, client_id) ({rate(name, *labels)}))"


def graph(
    title: str,
    description: str,
    unit: str,
    *queries: Query,
    width: int = 8,
    height: int = 8,
    warn_at: float | None = None,
) -> timeseries.Panel:
    """Return a panel with lines over time. ``warn_at`` is drawn as a line, above which values are too high."""
    panel = (
        timeseries.Panel()
        .unit(unit)
        .min(0)
        .line_width(1)
        .fill_opacity(10)
        .show_points(common.VisibilityMode.NEVER)
        .tooltip(
            common_builders.VizTooltipOptions().mode(common.TooltipDisplayMode.MULTI).sort(common.SortOrder.DESCENDING)
        )
        .legend(
            common_builders.VizLegendOptions()
            .show_legend(True)
            .display_mode(common.LegendDisplayMode.TABLE)
            .placement(common.LegendPlacement.BOTTOM)
            .calcs(["lastNotNull", "max"])
            .sort_by("Last *")
            .sort_desc(True)
        )
    )
    if warn_at is not None:
        panel.thresholds(_thresholds(warn_at))
        panel.thresholds_style(
            common_builders.GraphThresholdsStyleConfig().mode(common.GraphThresholdsStyleMode.DASHED)
        )
    for ref, query in zip("ABCDEF", queries, strict=False):
        panel.with_target(_target(ref, query.expr).legend_format(query.legend))
        if query.is_limit:
            dashes = {"fill": "dash", "dash": [8, 6]}
            panel.override_by_query(
                ref,
                [
                    models.DynamicConfigValue("custom.lineStyle", dashes),
                    models.DynamicConfigValue("custom.fillOpacity", 0),
                ],
            )
    return _placed(panel, title, description, width, height)


def number(
    title: str,
    description: str,
    expr: str,
    *,
    unit: str = "short",
    warn_at: float | None = None,
    alarm_at: float | None = None,
    words: Mapping[str, str] | None = None,
    width: int = 4,
) -> stat.Panel:
    """Return a panel with one number.

    It is orange from ``warn_at`` on, and red from ``alarm_at`` on. ``words`` replace numbers.
    """
    panel = (
        stat.Panel()
        .unit(unit)
        .graph_mode(common.BigValueGraphMode.NONE)
        .color_mode(common.BigValueColorMode.VALUE)
        .thresholds(_thresholds(warn_at, alarm_at))
        .reduce_options(common_builders.ReduceDataOptions().calcs(["lastNotNull"]))
        .with_target(_target("A", expr).instant())
    )
    if words:
        panel.mappings(_words({value: (word, None) for value, word in words.items()}))
    return _placed(panel, title, description, width, 4)


def states(title: str, description: str, query: Query, words: Mapping[str, tuple[str, str]]) -> statetimeline.Panel:
    """Return a panel with a bar for each series. ``words`` has the text and the colour of each value."""
    panel = (
        statetimeline.Panel()
        .show_value(common.VisibilityMode.NEVER)
        .merge_values(True)
        .mappings(_words(words))
        .with_target(_target("A", query.expr).legend_format(query.legend))
    )
    return _placed(panel, title, description, 12, 8)


def rows(
    title: str,
    description: str,
    labels: Sequence[str],
    *columns: Column,
    width: int = 12,
    height: int = 9,
    opens_client: bool = False,
) -> table.Panel:
    """Return a table with a row for each combination of ``labels``. The first column decides the order.

    If ``opens_client`` is true, a row leads to the dashboard of its client.
    """
    names = {f"Value #{ref}": column.title for ref, column in zip("ABCDEF", columns, strict=False)}
    if len(columns) == 1:
        names["Value"] = names.pop("Value #A")  # the name of the only query's values
    order = {name: place for place, name in enumerate((*labels, *names))}
    panel = (
        table.Panel()
        .with_transformation(models.DataTransformerConfig("merge", options={}))
        .with_transformation(
            models.DataTransformerConfig(
                "organize", options={"excludeByName": {"Time": True}, "indexByName": order, "renameByName": names}
            )
        )
    )
    for ref, column in zip("ABCDEF", columns, strict=False):
        panel.with_target(_target(ref, column.expr).instant().format(PromQueryFormat.TABLE))
        shown: list[tuple[str, Any]] = [("unit", column.unit)]
        if column.warn_at is not None:
            shown += [
                ("thresholds", _thresholds(column.warn_at).build()),
                ("custom.cellOptions", {"type": "color-text"}),
            ]
        panel.override_by_name(column.title, [models.DynamicConfigValue(*one) for one in shown])
    if columns:
        panel.sort_by([common_builders.TableSortByFieldState().display_name(columns[0].title).desc(True)])
    if opens_client:
        for label in ("user", "client_id"):
            panel.override_by_name(label, [models.DynamicConfigValue("links", [_OPENS_CLIENT])])
    return _placed(panel, title, description, width, height)


def variable(name: str, label: str, query: str, *, any_value: bool = False) -> builders.QueryVariable:
    """Return a variable, all of whose values are selected at first.

    If ``any_value`` is true, then "All" includes series that do not have the label.
    """
    made = (
        builders.QueryVariable(name)
        .label(label)
        .datasource(DATASOURCE)
        .query(query)
        .refresh(models.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(models.VariableSort.ALPHABETICAL_ASC)
        .multi(True)
        .include_all(True)
        .current(models.VariableOption(selected=True, text="All", value="$__all"))
    )
    return made.all_value(".*") if any_value else made


def dashboard(
    uid: str,
    title: str,
    description: str,
    metric: str,
    panels: Sequence[Builder[models.Panel]],
    *,
    by_client: str | None = None,
) -> models.Dashboard:
    """Return a dashboard.

    ``metric`` has the jobs and the proxies among which users select, and ``by_client`` the users and client-ids.
    """
    made = (
        builders.Dashboard(title)
        .uid(uid)
        .description(description)
        .tags([TAG])
        .refresh("30s")
        .time("now-1h", "now")
        .tooltip(models.DashboardCursorSync.CROSSHAIR)
        .link(
            builders.DashboardLink("Quota proxy")
            .type(models.DashboardLinkType.DASHBOARDS)
            .tags([TAG])
            .as_dropdown(True)
            .include_vars(True)
            .keep_time(True)
        )
        .with_variable(builders.DatasourceVariable("datasource").label("Prometheus").type("prometheus"))
        .with_variable(variable("job", "Job", f"label_values({metric}, job)"))
        .with_variable(variable("instance", "Proxy", f'label_values({metric}{{job=~"$job"}}, instance)'))
    )
    if by_client is not None:
        for name, label in (("user", "User"), ("client_id", "Client-id")):
            found = f"label_values({selector(by_client)}, {name})"
            made.with_variable(variable(name, label, found, any_value=True))
    for panel in panels:
        made.with_panel(panel)
    built = made.build()
    for panel_id, placed in enumerate(built.panels or [], start=1):
        placed.id_val = panel_id
    return built


def _target(ref: str, expr: str) -> prometheus.Dataquery:
    return prometheus.Dataquery().ref_id(ref).expr(expr).datasource(DATASOURCE)


def _placed(panel: P, title: str, description: str, width: int, height: int) -> P:
    return panel.title(title).description(description).datasource(DATASOURCE).span(width).height(height)


def _thresholds(warn_at: float | None, alarm_at: float | None = None) -> builders.ThresholdsConfig:
    steps = [models.Threshold(value=None, color="green")]
    for level, colour in ((warn_at, "orange"), (alarm_at, "red")):
        if level is not None:
            steps.append(models.Threshold(value=level, color=colour))
    return builders.ThresholdsConfig().mode(models.ThresholdsMode.ABSOLUTE).steps(steps)


def _words(words: Mapping[str, tuple[str, str | None]]) -> list[Any]:
    options = {
        value: models.ValueMappingResult(text=text, color=colour, index=place)
        for place, (value, (text, colour)) in enumerate(words.items())
    }
    return [models.ValueMap(options=options)]
