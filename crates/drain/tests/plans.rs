//! Plans made from the examples, and what is foreseen of them.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use drain::runbook::Library;
use drain::{Direction, Expected, Goal, Millis, Plan, Source, StageKind, TaskId, Value};

fn files(folder: &str) -> Vec<(String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let mut files: Vec<_> = fs::read_dir(&folder)
        .expect("a folder of runbooks")
        .map(|entry| entry.expect("an entry").path())
        .map(|path| (path.display().to_string(), fs::read_to_string(&path).expect("a text")))
        .collect();
    files.sort();
    files
}

fn library(folder: &str) -> Library {
    let library = Library::new(files(folder));
    assert!(library.is_sound(), "{:?}", library.problems());
    library
}

fn shop(direction: Direction, originals: &[(&str, f64)]) -> Plan {
    let originals: BTreeMap<_, _> =
        originals.iter().map(|(knob, at)| (knob.to_string(), Value::Number(*at))).collect();
    library("../../runbooks/shop")
        .plan("east", direction, &BTreeMap::new(), &originals)
        .expect("a plan")
}

fn names(plan: &Plan) -> Vec<&str> {
    plan.tasks.iter().map(|task| task.name.as_str()).collect()
}

#[test]
fn parents_come_first_and_variables_are_gone() {
    let plan = shop(Direction::Drain, &[]);
    assert_eq!(names(&plan), ["web.shift", "chat.shift", "chat.empty"]);
    assert_eq!(plan.tasks[1].after, [TaskId(0)]);
    let knobs: Vec<_> = plan.knobs.iter().map(ToString::to_string).collect();
    assert!(knobs.contains(&"edge:web/east".to_owned()), "{knobs:?}");
    assert_eq!(knobs.len(), 3, "each knob once: {knobs:?}");
    assert!(!format!("{plan:?}").contains("$dc"));
    let json = serde_json::to_string(&plan).expect("JSON");
    assert_eq!(serde_json::from_str::<Plan>(&json).expect("a plan"), plan);
}

#[test]
fn tasks_have_the_health_of_their_service_and_all_have_that_of_the_evacuation() {
    let plan = shop(Direction::Drain, &[]);
    let named = |ids: &[drain::ConditionId]| -> Vec<&str> {
        ids.iter().map(|id| plan.condition(*id).name.as_str()).collect()
    };
    assert_eq!(named(&plan.health), ["east.health.cpu"]);
    assert_eq!(named(&plan.tasks[0].health), ["web.errors"]);
    assert_eq!(named(&plan.tasks[1].health), ["chat.errors", "chat.reconnects"]);
    let StageKind::Check { condition } = plan.tasks[2].stages[0].kind else {
        panic!("{:?}", plan.tasks[2].stages)
    };
    assert_eq!(plan.condition(condition).name, "chat.empty.check.condition");
    assert!(matches!(plan.condition(condition).source, Source::Gauge(_)));
}

#[test]
fn a_restore_goes_back_to_where_the_drain_began() {
    let plan = shop(Direction::Restore, &[("edge:web/east", 0.4), ("edge:chat/east", 0.3)]);
    assert_eq!(names(&plan), ["chat.shift", "web.shift"]);
    let StageKind::Shift { to, .. } = &plan.tasks[1].stages[0].kind else {
        panic!("{:?}", plan.tasks[1].stages)
    };
    assert_eq!(*to, Goal::Original(Value::Number(0.4)));
}

#[test]
fn a_restore_of_nobody_knows_what_is_refused() {
    let problems = library("../../runbooks/shop")
        .plan("east", Direction::Restore, &BTreeMap::new(), &BTreeMap::new())
        .expect_err("no plan");
    assert_eq!(problems.len(), 2);
    assert!(problems[0].to_string().contains("nothing says where `edge:chat/east` stood"));
    assert!(problems[0].line > 0);
    let problems = library("../../runbooks/shop")
        .plan("eats", Direction::Drain, &BTreeMap::new(), &BTreeMap::new())
        .expect_err("no plan");
    assert_eq!(
        problems[0].to_string(),
        "runbooks: error: there is no evacuation of `eats`; did you mean `east`?"
    );
}

#[test]
fn stages_without_their_parameters_are_passed_over() {
    let originals = ["net:1", "sync:1", "config:mode", "shards:1", "edge:a/1", "edge:b/1"]
        .map(|knob| (knob.to_owned(), Value::Number(1.0)));
    let plan = library("tests/good/everything")
        .plan("1", Direction::Restore, &BTreeMap::new(), &BTreeMap::from(originals))
        .expect("a plan");
    let stages = |name: &str| -> Vec<&str> {
        let task = plan.find_task(name).map(|id| plan.task(id)).expect(name);
        task.stages.iter().map(|stage| stage.name.as_str()).collect()
    };
    assert_eq!(stages("all.a"), ["shift"]);
    assert_eq!(stages("all.shards"), ["shift"]);
    assert_eq!(stages("all.sync"), ["govern", "switch", "catch-up"]);
    assert_eq!(stages("all.jobs"), ["update"]);
}

/// Who reads a question or a change log at night has to know the value.
#[test]
fn texts_show_the_value_that_a_restore_puts_back() {
    const WEB: &str = r#"
pharos: service/v1
service: web
traffic: stateless
user_facing: true
drain:
  off: {template: ConfigChange, with: {knob: "config:web/$dc", content: "off"}}
  out: {template: Isolate, with: {knob: "net:$dc", to: "closed"}, after: [off]}
restore:
  in: {template: Isolate, with: {knob: "net:$dc", to: original}}
  on: {template: ConfigChange, with: {knob: "config:web/$dc", content: original}, after: [in]}
"#;
    const EAST: &str = "
pharos: evacuation/v1
datacenter: east
datacenters: {east: {capacity: 1}, west: {capacity: 1}}
services: [web]
";

    let files = [("web.yaml", WEB), ("east.yaml", EAST)];
    let files = files.map(|(name, text)| (name.to_owned(), text.to_owned()));
    let library = drain::runbook::Library::new(files.to_vec());
    let originals = BTreeMap::from([
        ("config:web/east".to_owned(), Value::Text("on".into())),
        ("net:east".to_owned(), Value::Number(0.8)),
    ]);
    let plan = library.plan("east", Direction::Restore, &BTreeMap::new(), &originals).unwrap();
    let texts: Vec<&str> = (plan.tasks.iter().flat_map(|task| &task.stages))
        .filter_map(|stage| match &stage.kind {
            drain::StageKind::Approve { question, .. } => Some(question.as_str()),
            drain::StageKind::Say(saying) => Some(saying.text.as_str()),
            _ => None,
        })
        .collect();
    assert!(texts.contains(&"Set net:east to 0.8?"), "{texts:?}");
    assert!(texts.contains(&"config:web/east is set to \"on\""), "{texts:?}");
    assert!(texts.iter().all(|text| !text.contains("original")), "{texts:?}");
}

#[test]
fn the_foresight_of_the_example() {
    let plan = shop(Direction::Drain, &[]);
    let web = plan.knobs.iter().position(|knob| knob.to_string() == "edge:web/east");
    let web = drain::KnobId(web.expect("the knob") as u32);
    let foresight = plan.foresee(&BTreeMap::from([(web, Value::Number(0.36))]));
    assert_eq!(foresight.critical_path, [TaskId(0), TaskId(1), TaskId(2)]);
    // Six steps of 20s; then twice seven of 30s around 2m of grace; then a look.
    let lasts: Vec<_> = foresight.tasks.iter().map(|task| task.lasts.to_string()).collect();
    assert_eq!(lasts, ["2m", "9m", "5s"]);
    assert!(foresight.fits);
    let after: Vec<_> = foresight.capacity.iter().map(|dc| dc.after.round()).collect();
    assert_eq!(after, [0.0, 581.0, 519.0], "by the weights of the others");
    assert_eq!(foresight.moves.len(), 3);
    assert_eq!(foresight.moves[0].from, Some(Value::Number(0.36)));
    assert_eq!(foresight.moves[0].to, Value::Number(0.0));
    // History knows better.
    let usual = Expected { usual: Some(Millis::from_secs(5)), ..Expected::default() };
    let expectations = BTreeMap::from([("web.shift".to_owned(), usual)]);
    let plan = library("../../runbooks/shop")
        .plan("east", Direction::Drain, &expectations, &BTreeMap::new())
        .expect("a plan");
    assert_eq!(plan.foresee(&BTreeMap::new()).tasks[0].lasts, Millis::from_secs(5));
}

#[test]
fn the_traffic_of_a_service_is_known_in_every_datacenter_and_in_both_directions() {
    let originals = [("edge:web/east", 0.4), ("edge:chat/east", 0.3)];
    for plan in [shop(Direction::Drain, &[]), shop(Direction::Restore, &originals)] {
        let chat = &plan.traffic[1];
        assert_eq!(chat.service, "chat");
        let shown = |at: usize| -> Vec<String> {
            let knobs = chat.datacenters[at].knobs.iter();
            knobs.map(|own| format!("{} → {}", own.knob, own.goal)).collect()
        };
        // Sessions come back by themselves.
        assert_eq!(shown(0), ["edge:chat/east → 0"]);
        assert_eq!(shown(2), ["edge:chat/south → 0"]);
        let loads: Vec<f64> = chat.datacenters.iter().map(|own| own.load).collect();
        assert_eq!(loads, [100.0, 90.0, 80.0]);
        let own = &chat.datacenters[0].knobs[0].original;
        match plan.direction {
            Direction::Drain => assert_eq!(*own, None),
            Direction::Restore => assert_eq!(*own, Some(Value::Number(0.3))),
        }
    }
}

#[test]
fn a_switch_of_a_datacenter_carries_its_traffic_where_nothing_is_shifted() {
    let db = "pharos: service/v1\nservice: db\ntraffic: stateful\nuser_facing: false\n\
              load: {east: 1, west: 2}\nmeasured_load: sum(qps{dc=\"$dc\", of=\"$service\"})\n\
              health: {ok: {query: up, above: 0, no_data: block}}\n\
              drain:\n  a: {template: ConfigChange, with: {knob: \"cfg:db/$dc\", content: off}}\n\
              \u{20}\u{20}b: {template: ConfigChange, with: {knob: \"cfg:all\", content: low}}\n\
              restore:\n  a: {template: ConfigChange, with: {knob: \"cfg:db/$dc\", content: original}}\n\
              \u{20}\u{20}b: {template: ConfigChange, with: {knob: \"cfg:all\", content: original}}\n";
    let east = "pharos: evacuation/v1\ndatacenter: east\nservices: [db]\nkeep_drained: always\n\
                datacenters: {east: {capacity: 5}, west: {capacity: 5}}\n";
    let library = Library::new(vec![("db".into(), db.into()), ("east".into(), east.into())]);
    assert_eq!(library.problems(), []);
    let plan = library.plan("east", Direction::Drain, &BTreeMap::new(), &BTreeMap::new());
    let plan = plan.expect("a plan");
    let west = &plan.traffic[0].datacenters[1];
    let knobs: Vec<String> = west.knobs.iter().map(|own| own.knob.to_string()).collect();
    assert_eq!(knobs, ["cfg:db/west"], "one of all datacenters says nothing about one");
    assert_eq!(west.measured_load.as_deref(), Some("sum(qps{dc=\"west\", of=\"db\"})"));
    assert_eq!(plan.keep_drained, drain::KeepDrained::Always);
    let json = serde_json::to_string(&plan).expect("JSON");
    assert_eq!(serde_json::from_str::<Plan>(&json).expect("a plan"), plan);
}

/// The traffic knobs of a service in `west`, each with its goal.
fn carried(service: &str, template: &str) -> Vec<String> {
    let east = "pharos: evacuation/v1\ndatacenter: east\nservices: [web]\n\
                datacenters: {east: {capacity: 5}, west: {capacity: 5}}\n";
    let service = format!(
        "pharos: service/v1\nservice: web\ntraffic: stateless\nuser_facing: true\n\
         load: {{east: 1, west: 2}}\nhealth: {{ok: {{query: up, above: 0, no_data: block}}}}\n\
         {service}"
    );
    let files = [("web", service.as_str()), ("east", east), ("own", template)];
    let files = files.into_iter().filter(|(_, text)| !text.is_empty());
    let library = Library::new(files.map(|(name, text)| (name.into(), text.into())).collect());
    assert!(library.is_sound(), "{:?}", library.problems());
    let plan = library.plan("east", Direction::Drain, &BTreeMap::new(), &BTreeMap::new());
    let plan = plan.expect("a plan");
    let knobs = plan.traffic[0].datacenters[1].knobs.iter();
    knobs.map(|own| format!("{} → {}", own.knob, own.goal)).collect()
}

/// That a template says how it is undone does not make a promotion of it.
#[test]
fn what_a_template_with_an_undo_moves_carries_traffic() {
    const OWN: &str = "
pharos: template/v1
template: Announced
about: moves a weight, closes a switch, and tells somebody
parameters:
  knob: {type: knob, required: true, about: the weight}
  switch: {type: knob, required: true, about: the switch}
stages:
  move: {stage: Shift, with: {knob: $knob, to: 0%}}
  close: {stage: Set, with: {knob: $switch, to: closed}}
  tell: {stage: Act, with: {driver: net, action: withdraw}}
undo:
  after: tell
  stages:
    untell: {stage: Act, with: {driver: net, action: announce}}
";
    let service = r#"
drain:
  out: {template: Announced, with: {knob: "edge:web/$dc", switch: "edge:state/$dc"}}
restore:
  open: {template: ConfigChange, with: {knob: "edge:state/$dc", content: original}}
  in: {template: TrafficShift, with: {knob: "edge:web/$dc", to: original}, after: [open]}
"#;
    let knobs = carried(service, OWN);
    assert_eq!(knobs, ["edge:web/west → 0", "edge:state/west → \"closed\""]);
}

/// Neither a fence nor a primary is traffic, with a fence or without.
#[test]
fn what_is_promoted_carries_no_traffic() {
    let fenced = [
        r#", from: 1, fence: "db:fence/$dc", unfence_to: open"#,
        r#", from: 0, fence: "db:fence/$dc", unfence_to: open"#,
    ];
    for [fence, fence_back] in [["", ""], fenced] {
        let lag = "nearly_caught_up: {query: lag, below: 2, no_data: block}";
        let service = format!(
            r#"
drain:
  promote:
    template: Promote
    with: {{knob: "db:primary/$dc", to: 0, {lag}{fence}}}
  shift: {{template: ShardShift, with: {{knob: "db:shards/$dc", to: 0%}}}}
restore:
  shift: {{template: ShardShift, with: {{knob: "db:shards/$dc", to: original}}}}
  promote:
    template: Promote
    with: {{knob: "db:primary/$dc", to: original, {lag}{fence_back}}}
"#
        );
        assert_eq!(carried(&service, ""), ["db:shards/west → 0"], "{fence}");
    }
}

/// Tasks run in the order of what they wait for, wherever they stand in the file.
#[test]
fn a_knob_that_two_tasks_set_is_left_where_the_later_one_sets_it() {
    let service = r#"
drain:
  close: {template: ConfigChange, with: {knob: "edge:web/$dc", content: "off"}, after: [soft]}
  soft: {template: ConfigChange, with: {knob: "edge:web/$dc", content: draining}}
restore:
  open: {template: ConfigChange, with: {knob: "edge:web/$dc", content: original}}
"#;
    assert_eq!(carried(service, ""), ["edge:web/west → \"off\""]);
}

#[test]
fn what_measures_load_must_name_the_datacenter() {
    let db = "pharos: service/v1\nservice: db\ntraffic: stateful\nuser_facing: false\n\
              measured_load: sum(qps)\nhealth: {ok: {query: up, above: 0, no_data: block}}\n\
              drain: {w: {template: Wait, with: {span: 1s}}}\nrestore: {}\n";
    let library = Library::new(vec![("db.yaml".into(), db.into())]);
    let said: Vec<String> = library.problems().iter().map(ToString::to_string).collect();
    assert!(said[0].contains("`measured_load` is the same for every datacenter"), "{said:?}");
    assert!(said[1].contains("without `load`"), "{said:?}");
}

#[test]
fn pictures_show_every_task_and_every_dependency() {
    let plan = library("tests/good/everything")
        .plan("1", Direction::Drain, &BTreeMap::new(), &BTreeMap::new())
        .expect("a plan");
    let foresight = plan.foresee(&BTreeMap::new());
    let (svg, dot) = (plan.to_svg(&foresight), plan.to_dot(&foresight));
    let edges: usize = plan.tasks.iter().map(|task| task.parents().count()).sum();
    assert_eq!(svg.matches("marker-end").count(), edges);
    assert_eq!(dot.matches(" -> ").count(), edges);
    assert_eq!(dot.matches("style=dashed").count(), 1);
    for task in &plan.tasks {
        assert!(svg.contains(&task.name) && dot.contains(&task.name), "{}", task.name);
    }
}

/// A plan of many services, of which each task waits for a few of earlier ones.
fn many_services(services: usize, tasks: usize) -> Plan {
    let mut files = Vec::new();
    let mut seed = 7u32;
    let mut random = |below: usize| {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (seed >> 16) as usize % below.max(1)
    };
    for service in 0..services {
        let mut text = format!(
            "pharos: service/v1\nservice: service-{service}\ntraffic: stateless\nuser_facing: \
             true\nhealth: {{ok: {{query: up, above: 0, no_data: block}}}}\nrestore: {{}}\ndrain:\n"
        );
        for task in 0..tasks {
            let mut after = Vec::new();
            if task > 0 {
                after.push(format!("step-{}", task - 1));
            }
            if service > 0 && random(3) > 0 {
                after.push(format!("service-{}.step-{}", random(service), random(tasks)));
            }
            let key = if random(4) == 0 { "after_weak" } else { "after" };
            let (span, after) = (10 + random(90), after.join(", "));
            text += &format!(
                "  step-{task}: {{template: Wait, with: {{span: {span}s}}, {key}: [{after}]}}\n"
            );
        }
        files.push((format!("{service}.yaml"), text));
    }
    let names: Vec<_> = (0..services).map(|service| format!("service-{service}")).collect();
    let evacuation = format!(
        "pharos: evacuation/v1\ndatacenter: a\ndatacenters: {{a: {{capacity: 1}}, b: {{capacity: \
         1}}}}\nservices: [{}]\n",
        names.join(", ")
    );
    files.push(("a.yaml".into(), evacuation));
    let library = Library::new(files);
    assert_eq!(library.problems(), []);
    library.plan("a", Direction::Drain, &BTreeMap::new(), &BTreeMap::new()).expect("a plan")
}

#[test]
fn boxes_of_a_picture_do_not_lie_on_each_other() {
    let plan = many_services(14, 4);
    let svg = plan.to_svg(&plan.foresee(&BTreeMap::new()));
    let number = |text: &str, key: &str| -> f64 {
        let at = text.find(key).map(|at| at + key.len()).expect(key);
        let length = text[at..].find('"').expect("an end");
        text[at..at + length].parse().expect("a number")
    };
    let boxes: Vec<_> = svg
        .split("<g>")
        .skip(1)
        .map(|line| (number(line, "<rect x=\""), number(line, " y=\"")))
        .collect();
    assert_eq!(boxes.len(), 14 * 4);
    for (at, (x, y)) in boxes.iter().enumerate() {
        assert!(*x >= 0.0 && *y >= 0.0);
        let below = |(other_x, other_y): &(f64, f64)| other_x != x || (other_y - y).abs() > 42.0;
        assert!(boxes[..at].iter().all(below), "two boxes at {x}, {y}");
    }
    // For a look at it.
    if let Ok(folder) = std::env::var("PICTURES") {
        fs::write(format!("{folder}/plan.svg"), svg).expect("a picture");
    }
}

#[test]
fn a_plan_of_thousands_of_tasks_is_made_and_foreseen_at_once() {
    let mut service = String::from(
        "pharos: service/v1\nservice: big\ntraffic: stateless\nuser_facing: true\nhealth:\n  \
         ok: {query: up, above: 0, no_data: block}\nrestore: {}\ndrain:\n",
    );
    for at in 0..5000 {
        let after = if at < 10 { String::new() } else { format!("t{}, t{}", at - 10, at - 7) };
        service += &format!("  t{at}: {{template: Wait, with: {{span: 1s}}, after: [{after}]}}\n");
    }
    let evacuation = "pharos: evacuation/v1\ndatacenter: a\ndatacenters: {a: {capacity: 1}, b: \
                      {capacity: 1}}\nservices: [big]\n";
    let files = vec![("big".into(), service), ("a".into(), evacuation.to_owned())];
    let library = Library::new(files);
    assert_eq!(library.problems(), []);
    let plan =
        library.plan("a", Direction::Drain, &BTreeMap::new(), &BTreeMap::new()).expect("a plan");
    assert_eq!(plan.tasks.len(), 5000);
    for id in plan.task_ids() {
        assert!(plan.task(id).parents().all(|parent| parent < id));
    }
    assert!(plan.foresee(&BTreeMap::new()).waves.len() > 400);
}

#[test]
fn a_datacenter_without_load_has_none() {
    let web = "pharos: service/v1\nservice: web\ntraffic: stateless\nuser_facing: true\n\
               drain: {wait: {template: Wait, with: {span: 1s}}}\n\
               restore: {wait: {template: Wait, with: {span: 1s}}}\n";
    let east = "pharos: evacuation/v1\ndatacenter: east\nservices: [web]\n\
                datacenters: {east: {capacity: 1}, west: {capacity: 1}}\n";
    let files = [("web.yaml", web), ("east.yaml", east)];
    let library = Library::new(files.map(|(name, text)| (name.into(), text.into())).into());
    let plan = library.plan("east", Direction::Drain, &BTreeMap::new(), &BTreeMap::new());
    let plan = plan.unwrap_or_else(|problems| panic!("{problems:?}"));
    let loads: Vec<String> = plan.datacenters.iter().map(|dc| format!("{:.0}", dc.load)).collect();
    assert_eq!(loads, ["0", "0"]);
}

/// Whoever writes the runbooks of west must not stand in the way of east.
#[test]
fn a_restore_does_without_the_files_of_others_that_have_errors() {
    let sound = files("../../runbooks/shop");
    let web = sound.iter().find(|(name, _)| name.ends_with("web.yaml")).expect("a service");
    let names = |library: &Library| -> Vec<String> {
        library.left_out().iter().map(|problem| problem.file.clone()).collect()
    };
    let with = |others: &[(&str, &str)]| {
        let others = others.iter().map(|(name, text)| (String::from(*name), String::from(*text)));
        sound.iter().cloned().chain(others).collect::<Vec<_>>()
    };
    let cases: [(&str, &str); 4] = [
        ("west.yaml", "pharos: evacuation/v1\ndatacenter: west\nservices: [wbe]\n"),
        ("notes.yaml", "call bob\n"),
        ("mail.yaml", "pharos: service/v1\nservice: mail\nhaelth: {}\n"),
        ("odd.yaml", "{"),
    ];
    for case in cases {
        let files = with(&[case]);
        assert!(!Library::new(files.clone()).is_sound(), "{}", case.0);
        let library = Library::for_restore(files, "east");
        assert!(library.is_sound(), "{}: {:?}", case.0, library.problems());
        assert!(!names(&library).is_empty() && names(&library).iter().all(|name| name == case.0));
    }
    let library = Library::for_restore(with(&cases), "east");
    assert!(library.is_sound(), "{:?}", library.problems());
    assert_eq!(library.evacuations().collect::<Vec<_>>(), ["east"]);
    // An evacuation that has forgotten this datacenter makes an error in what is needed.
    let forgot = "pharos: evacuation/v1\ndatacenter: west\nservices: [web]\n\
                  datacenters: {west: {capacity: 100}, north: {capacity: 100}}\n";
    let files = with(&[("west.yaml", forgot)]);
    let errors = Library::new(files.clone());
    let is_in_web = |problem: &drain::runbook::Problem| problem.file == web.0;
    assert!(errors.problems().iter().any(is_in_web), "{:?}", errors.problems());
    let library = Library::for_restore(files, "east");
    assert!(library.is_sound(), "{:?}", library.problems());
    assert!(library.left_out().iter().any(is_in_web), "{:?}", library.left_out());
    // What the restore itself needs is not left out.
    let twice = Library::for_restore(with(&[("copy.yaml", &web.1)]), "east");
    assert!(!twice.is_sound() && twice.left_out().is_empty());
    let broken = sound.iter().map(|(name, text)| {
        let broken = format!("{text}\nhaelth: {{}}\n");
        (name.clone(), if *name == web.0 { broken } else { text.clone() })
    });
    assert!(!Library::for_restore(broken.collect(), "east").is_sound());
    assert!(!Library::for_restore(with(&cases), "north").is_sound(), "nothing says what it needs");
}
