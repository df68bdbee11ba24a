//! Checks that the dashboard, the alerts and the runbooks query existing metrics and labels, by the table in
//! docs/reference/metrics.md. The end-to-end test `serving` compares the table with what services expose. It needs no
//! cluster.
#![forbid(unsafe_code)]
// The helpers of tests are tests, too.
#![allow(clippy::unwrap_used)]

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
};

use podward_e2e::metrics::{Metric, documented};
use podward_images::workspace_dir;
use promql_parser::parser::{self, BinaryExpr, Call, Expr, LabelModifier, VectorSelector, token};
use serde_json::Value;

type LabelNames = BTreeSet<String>;

/// The labels that Prometheus adds to each series from its target.
const OF_TARGETS: [&str; 3] = ["namespace", "job", "pod"];
/// The metrics of the API server, with the labels that are used here.
const OF_OTHERS: [(&str, &[&str]); 2] = [
    ("apiserver_admission_webhook_rejection_count", &["name", "type", "error_type"]),
    ("apiserver_admission_webhook_fail_open_count", &["name", "type"]),
];

fn read(path: &str) -> String {
    fs::read_to_string(workspace_dir().join(path)).unwrap()
}

/// The metrics that a query may use.
struct KnownMetrics(BTreeMap<String, Metric>);

impl KnownMetrics {
    /// Returns the labels of the series `name`.
    fn labels(&self, name: &str) -> Result<LabelNames, String> {
        let with =
            |labels: &mut dyn Iterator<Item = &str>| labels.map(ToOwned::to_owned).collect::<LabelNames>();
        if let Some((_, labels)) = OF_OTHERS.iter().find(|(other, _)| *other == name) {
            return Ok(with(&mut labels.iter().copied()));
        }
        let (base, more): (&str, &[&str]) = match name.rsplit_once('_') {
            Some((base, "bucket")) => (base, &["le"]),
            Some((base, "sum" | "count")) => (base, &[]),
            _ => (name, &[]),
        };
        let metric = self.0.get(base).ok_or_else(|| format!("there is no metric {name}"))?;
        if (metric.kind == "histogram") == (base == name) {
            return Err(format!("{base} is a {}, so there is no series {name}", metric.kind));
        }
        Ok(with(&mut metric.labels.iter().map(String::as_str).chain(OF_TARGETS).chain(more.iter().copied())))
    }

    /// Checks a query whose result must have the labels `wanted`.
    fn check(&self, query: &str, wanted: &LabelNames) -> Result<(), String> {
        let query = query.replace("$__rate_interval", "5m");
        let checked = parser::parse(&query).and_then(|expression| self.walk(&expression, wanted));
        checked.map_err(|error| format!("{error}; in {query}"))
    }

    fn walk(&self, expression: &Expr, wanted: &LabelNames) -> Result<(), String> {
        match expression {
            Expr::VectorSelector(selector) => self.selector(selector, wanted),
            Expr::MatrixSelector(matrix) => self.selector(&matrix.vs, wanted),
            Expr::Paren(inner) => self.walk(&inner.expr, wanted),
            Expr::Unary(inner) => self.walk(&inner.expr, wanted),
            Expr::Subquery(inner) => self.walk(&inner.expr, wanted),
            Expr::Binary(binary) => self.binary(binary, wanted),
            Expr::Call(call) => self.call(call, wanted),
            Expr::Aggregate(aggregate) => match &aggregate.modifier {
                Some(LabelModifier::Include(by)) => {
                    let by: LabelNames = by.labels.iter().cloned().collect();
                    let missing: Vec<_> = wanted.difference(&by).collect();
                    if !missing.is_empty() {
                        return Err(format!("the labels {missing:?} are aggregated away"));
                    }
                    self.walk(&aggregate.expr, &by)
                }
                None if wanted.is_empty() => self.walk(&aggregate.expr, wanted),
                _ => Err(format!("an aggregation that says nothing of the labels {wanted:?}")),
            },
            Expr::NumberLiteral(_) | Expr::StringLiteral(_) => Ok(()),
            Expr::Extension(_) => Err("what is no PromQL".to_owned()),
        }
    }

    fn selector(&self, selector: &VectorSelector, wanted: &LabelNames) -> Result<(), String> {
        let name = selector.name.as_deref().ok_or("a selector without a metric's name")?;
        let labels = self.labels(name)?;
        let asked = selector.matchers.matchers.iter().map(|matcher| &matcher.name).chain(wanted);
        let missing: Vec<_> = asked.filter(|label| !labels.contains(*label)).collect();
        if missing.is_empty() { Ok(()) } else { Err(format!("{name} has no labels {missing:?}")) }
    }

    fn binary(&self, binary: &BinaryExpr, wanted: &LabelNames) -> Result<(), String> {
        let matching = binary.modifier.as_ref().and_then(|modifier| modifier.matching.as_ref());
        let on: LabelNames = match matching {
            Some(LabelModifier::Include(on)) => on.labels.iter().cloned().collect(),
            _ => LabelNames::new(),
        };
        // The result of these operators has the labels of the left side.
        let is_left = matching.is_some() || [token::T_LAND, token::T_LUNLESS].contains(&binary.op.id());
        let right = if is_left { &on } else { wanted };
        let left = wanted.union(&on).cloned().collect();
        // A number has no labels and needs none.
        for (side, wanted) in [(&binary.lhs, &left), (&binary.rhs, right)] {
            let is_scalar = side.value_type() == parser::value::ValueType::Scalar;
            self.walk(side, if is_scalar { const { &LabelNames::new() } } else { wanted })?;
        }
        Ok(())
    }

    fn call(&self, call: &Call, wanted: &LabelNames) -> Result<(), String> {
        let mut wanted = wanted.clone();
        match call.func.name {
            // `absent` only has the labels of the selector.
            "absent" if wanted.is_empty() => {}
            "absent" | "vector" if !wanted.is_empty() => {
                return Err(format!("{} gives no labels {wanted:?}", call.func.name));
            }
            "histogram_quantile" => drop(wanted.insert("le".to_owned())),
            _ => {}
        }
        call.args.args.iter().try_for_each(|argument| {
            let is_scalar = argument.value_type() == parser::value::ValueType::Scalar;
            self.walk(argument, if is_scalar { const { &LabelNames::new() } } else { &wanted })
        })
    }
}

/// Returns the labels that a text uses, each between `before` and a character that cannot be part of its name.
fn named(text: &str, before: &str) -> LabelNames {
    let name = |rest: &str| -> String {
        rest.chars().take_while(|letter| letter.is_ascii_alphanumeric() || *letter == '_').collect()
    };
    text.split(before).skip(1).map(name).collect()
}

#[test]
fn the_dashboard_queries_existing_metrics() {
    let known = KnownMetrics(documented().unwrap());
    let dashboard: Value = serde_json::from_str(&read("deploy/dashboards/podward.json")).unwrap();
    let (mut wrong, mut asked) = (Vec::new(), 0);
    for panel in dashboard["panels"].as_array().unwrap() {
        assert!(panel["panels"].as_array().is_none_or(Vec::is_empty), "panels in panels are not looked at");
        for target in panel["targets"].as_array().into_iter().flatten() {
            asked += 1;
            let wanted = named(target["legendFormat"].as_str().unwrap_or_default(), "{{");
            if let Err(error) = known.check(target["expr"].as_str().unwrap(), &wanted) {
                wrong.push(format!("{}: {error}", panel["title"]));
            }
        }
    }
    for variable in dashboard["templating"]["list"].as_array().unwrap() {
        let Some(query) = variable["definition"].as_str() else { continue };
        asked += 1;
        let parts = query.strip_prefix("label_values(").and_then(|rest| rest.strip_suffix(')'));
        let (selector, label) = parts.and_then(|parts| parts.rsplit_once(", ")).unwrap();
        if let Err(error) = known.check(selector, &LabelNames::from([label.to_owned()])) {
            wrong.push(format!("the variable {}: {error}", variable["name"]));
        }
    }
    assert!(asked > 50, "only {asked} queries were found");
    assert_eq!(wrong, [""; 0]);
}

/// Prometheus would rename it, and a query for it would get what belongs to the scraped pod.
#[test]
fn no_metric_has_a_label_that_prometheus_sets() {
    let has_such = |metric: &Metric| metric.labels.iter().any(|label| OF_TARGETS.contains(&label.as_str()));
    let wrong: Vec<String> =
        documented().unwrap().into_values().filter(has_such).map(|metric| metric.name).collect();
    assert_eq!(wrong, [""; 0]);
}

/// A metric that nobody looks at is not worth its series.
#[test]
fn every_metric_is_on_the_dashboard() {
    let dashboard: Value = serde_json::from_str(&read("deploy/dashboards/podward.json")).unwrap();
    let panels = dashboard["panels"].as_array().unwrap().iter();
    let queries = panels.flat_map(|panel| panel["targets"].as_array().into_iter().flatten());
    let queries: Vec<&str> = queries.map(|target| target["expr"].as_str().unwrap()).collect();
    let is_asked = |name: &String| queries.iter().any(|query| query.contains(name.as_str()));
    let missing: Vec<String> = documented().unwrap().into_keys().filter(|name| !is_asked(name)).collect();
    assert_eq!(missing, [""; 0]);
}

#[test]
fn alerts_query_existing_metrics_and_have_runbooks() {
    let known = KnownMetrics(documented().unwrap());
    let rules: Value = serde_saphyr::from_str(&read("deploy/alerts/podward.yaml")).unwrap();
    let groups = rules["spec"]["groups"].as_array().unwrap();
    let alerts: Vec<&Value> = groups.iter().flat_map(|group| group["rules"].as_array().unwrap()).collect();
    assert!(!alerts.is_empty());
    let overview = read("docs/runbooks/README.md");
    let mut wrong = Vec::new();
    for alert in alerts {
        let text = |part: &Value| part.as_str().unwrap().to_owned();
        let (name, words) = (text(&alert["alert"]), &alert["annotations"]);
        let wanted = named(&(text(&words["summary"]) + &text(&words["description"])), "$labels.");
        if let Err(error) = known.check(&text(&alert["expr"]), &wanted) {
            wrong.push(format!("{name}: {error}"));
        }
        let page = format!("docs/runbooks/{name}.md");
        assert_eq!(text(&words["runbook_url"]), format!("kubectl podward runbook {name}"));
        assert!(read(&page).starts_with(&format!("# {name}\n")), "{page} is about something else");
        assert!(
            overview.contains(&format!("[{name}]({name}.md)")),
            "{name} is not in docs/runbooks/README.md"
        );
    }
    assert_eq!(wrong, [""; 0]);
}

#[test]
fn runbooks_name_metrics_that_there_are() {
    let known = documented().unwrap();
    let pages = fs::read_dir(workspace_dir().join("docs/runbooks")).unwrap();
    let mut found = 0;
    for page in pages.map(|entry| entry.unwrap().path()) {
        for name in named(&fs::read_to_string(&page).unwrap(), "`podward_") {
            found += 1;
            assert!(known.contains_key(&format!("podward_{name}")), "{}: podward_{name}", page.display());
        }
    }
    assert!(found > 10, "only {found} names were found");
}

#[test]
fn missing_metrics_are_found() {
    let known = KnownMetrics(documented().unwrap());
    let wanted = LabelNames::from(["hook".to_owned()]);
    for query in [
        "podward_hook_reachable",
        "sum by (hook, pod) (rate(podward_hook_calls_total{outcome!=\"DONE\"}[5m]))",
        "histogram_quantile(0.9, sum by (hook, le) (rate(podward_hook_call_seconds_bucket[$__rate_interval]))) > 1",
        "max by (hook) (podward_hook_reachable) unless on (hook) sum by (hook) (podward_hook_questions_open)",
    ] {
        known.check(query, &wanted).unwrap();
    }
    for (query, says) in [
        ("podward_hooks_reachable", "there is no metric podward_hooks_reachable"),
        ("podward_hook_reachable{phase=\"PREPARE\"}", "podward_hook_reachable has no labels [\"phase\"]"),
        ("sum(podward_hook_reachable)", "says nothing of the labels"),
        ("sum by (pod) (podward_hook_reachable)", "[\"hook\"] are aggregated away"),
        ("podward_hook_call_seconds", "so there is no series podward_hook_call_seconds"),
        ("podward_hook_reachable_count", "so there is no series podward_hook_reachable_count"),
        ("podward_hook_reachable unless on (phase) podward_hook_reachable", "has no labels [\"phase\"]"),
        (
            "histogram_quantile(0.9, sum by (hook) (rate(podward_hook_call_seconds_bucket[5m])))",
            "[\"le\"] are aggregated away",
        ),
        ("podward_hook_reachable or podward_leader", "podward_leader has no labels [\"hook\"]"),
    ] {
        let error = known.check(query, &wanted).unwrap_err();
        assert!(error.contains(says), "{error}");
    }
}
