//! What runbooks consist of: one table, from which files are checked and from
//! which their JSON Schema is made.

/// A map with known keys.
#[derive(Debug)]
pub(crate) struct Shape {
    /// As problems call it: `a task`.
    pub name: &'static str,
    pub about: &'static str,
    pub fields: &'static [Field],
    /// Exactly one key of each of these groups must be there.
    pub one_of: &'static [&'static [&'static str]],
}

#[derive(Debug)]
pub(crate) struct Field {
    pub name: &'static str,
    pub kind: Kind,
    pub need: Need,
    pub about: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Need {
    Required,
    Optional,
    /// What holds when it is absent, as it would be written.
    Default(&'static str),
}

/// What stands at a place.
#[derive(Debug)]
pub(crate) enum Kind {
    /// Any text, with variables in it.
    Text,
    /// PromQL, with variables in it.
    Query,
    /// `driver:name`, with variables in it.
    Knob,
    Name,
    /// A task of the same service, or `service.task`.
    Reference,
    Choice(&'static [&'static str]),
    Truth,
    Number {
        min: f64,
        max: f64,
    },
    Integer {
        min: i64,
        max: i64,
    },
    /// From 0 to 1; `0` itself only if it is not `above_zero`.
    Share {
        above_zero: bool,
    },
    Duration,
    /// A duration, or `$name` of a parameter that is one.
    Timeout,
    /// What it must be is decided elsewhere: by a template, or by a stage.
    Value,
    /// The name of a condition, or one in place.
    Condition,
    List(&'static Kind),
    /// Names that the file chooses, each with such a value.
    Map(&'static Kind),
    Record(&'static Shape),
}

use crate::plan::LOAD_MAX;
use Kind::*;
use Need::{Default, Optional, Required};

const fn field(name: &'static str, kind: Kind, need: Need, about: &'static str) -> Field {
    Field { name, kind, need, about }
}

/// The kinds of files, by what stands behind `pharos:`.
pub(crate) static FORMATS: [(&str, &Shape); 3] =
    [("service/v1", &SERVICE), ("evacuation/v1", &EVACUATION), ("template/v1", &TEMPLATE)];

pub(crate) static SERVICE: Shape = Shape {
    name: "a service",
    about: "One service: its traffic, its health, and the tasks that drain and restore it.",
    fields: &[
        field("pharos", Choice(&["service/v1"]), Required, "The format of this file."),
        field("service", Name, Required, "What it is called everywhere."),
        field(
            "traffic",
            Choice(&["stateless", "sticky", "replication", "stateful"]),
            Required,
            "How its traffic can be moved: rerouted; rerouted, then sessions are torn down; by \
             its own replication; by promoting a replica elsewhere.",
        ),
        field(
            "user_facing",
            Truth,
            Required,
            "Whether people wait for its answers. Such services go first.",
        ),
        field(
            "load",
            Map(&Number { min: 0.0, max: LOAD_MAX }),
            Optional,
            "How much of each datacenter's capacity it uses.",
        ),
        field(
            "measured_load",
            Query,
            Optional,
            "The present load of a datacenter, in PromQL with `$dc`, in the unit of `load`: one \
             value. Plans use it when it is fresh, else `load`.",
        ),
        field(
            "health",
            Map(&Record(&CONDITION)),
            Optional,
            "What must hold while it is moved. Tasks and other services name these conditions.",
        ),
        field("drain", Map(&Record(&TASK)), Required, "The tasks that move it out."),
        field("restore", Map(&Record(&TASK)), Required, "The tasks that move it back."),
    ],
    one_of: &[],
};

pub(crate) static TASK: Shape = Shape {
    name: "a task",
    about: "Something to be done: a template with its parameters, and what it waits for.",
    fields: &[
        field("template", Name, Required, "What is done."),
        field("with", Map(&Value), Optional, "The parameters of the template."),
        field(
            "after",
            List(&Reference),
            Optional,
            "Tasks that must be complete before this one starts: `task` or `service.task`.",
        ),
        field(
            "after_weak",
            List(&Reference),
            Optional,
            "The same, but in a disaster they may be overridden.",
        ),
        field("pre", List(&Condition), Optional, "What must hold before it starts."),
        field("post", List(&Condition), Optional, "What must hold before it counts as complete."),
        field(
            "health",
            List(&Condition),
            Optional,
            "What must hold while it goes on. All health of its service unless told.",
        ),
        field("pace", Record(&PACE), Optional, "How fast it may move a knob."),
        field("timeout", Duration, Default("1h"), "After that long it is stuck."),
        field(
            "priority",
            Integer { min: -1000, max: 1000 },
            Optional,
            "Higher goes first where tasks compete. Unless told 100 for what faces users, 50 for \
             other stateful services, else 0.",
        ),
        field(
            "budgets",
            Map(&Number { min: 0.0, max: f64::INFINITY }),
            Optional,
            "What it would use of each budget at full speed.",
        ),
    ],
    one_of: &[],
};

pub(crate) static PACE: Shape = Shape {
    name: "a pace",
    about: "How a knob is moved: small steps first, then as large as health allows.",
    fields: &[
        field(
            "first",
            Share { above_zero: true },
            Default("5%"),
            "The first step, small on purpose.",
        ),
        field("step_max", Share { above_zero: true }, Default("25%"), "The largest step."),
        field("wait", Duration, Default("30s"), "How long to look at a step at least."),
        field("wait_max", Duration, Default("5m"), "How long to look at a step at most."),
        field("adaptive", Truth, Default("true"), "Whether steps grow and shrink with health."),
        field(
            "on_breach",
            Choice(&["hold", "back_off", "revert"]),
            Default("hold"),
            "What to do when health is breached for longer than `patience`.",
        ),
        field("patience", Duration, Default("2m"), "How long a breach may last."),
    ],
    one_of: &[],
};

const COMPARISONS: &[&str] = &["below", "at_most", "above", "at_least", "equals"];
const ANY_NUMBER: Kind = Number { min: f64::NEG_INFINITY, max: f64::INFINITY };

macro_rules! condition_fields {
    ($($more:expr),*) => {
        &[
            $($more,)*
            field("query", Query, Optional, "What is measured, in PromQL."),
            field("gauge", Knob, Optional, "What is measured: where a knob stands."),
            field("below", ANY_NUMBER, Optional, "It holds if the value is less than this."),
            field("at_most", ANY_NUMBER, Optional, "It holds if the value is this or less."),
            field("above", ANY_NUMBER, Optional, "It holds if the value is more than this."),
            field("at_least", ANY_NUMBER, Optional, "It holds if the value is this or more."),
            field("equals", ANY_NUMBER, Optional, "It holds if the value is this."),
            field("for", Duration, Default("0s"), "How long it must have held without a break."),
            field(
                "no_data",
                Choice(&["block", "pass", "fail"]),
                Required,
                "What it means that there is no value: nothing goes on, it holds, it is breached.",
            ),
            field(
                "max_age",
                Duration,
                Optional,
                "How old its newest sample may be: three scrape intervals by default.",
            ),
            field(
                "no_traffic",
                Choice(&["block", "pass", "fail", "pass_on_restore"]),
                Optional,
                "What 0/0 means, as in an error ratio without requests: as `no_data` by default.",
            ),
        ]
    };
}

/// A condition that has its name from the key it stands behind.
pub(crate) static CONDITION: Shape = Shape {
    name: "a condition",
    about: "What is measured, what it must be, for how long, and what no data means.",
    fields: condition_fields!(),
    one_of: &[&["query", "gauge"], COMPARISONS],
};

pub(crate) static CONDITION_IN_PLACE: Shape = Shape {
    name: "a condition in place",
    about: "A condition where it is used, with a name of its own if it has one.",
    fields: condition_fields!(field("name", Name, Optional, "As people know it.")),
    one_of: &[&["query", "gauge"], COMPARISONS],
};

pub(crate) static EVACUATION: Shape = Shape {
    name: "an evacuation",
    about: "One datacenter: the services that leave it, and how their tasks wait for each other.",
    fields: &[
        field("pharos", Choice(&["evacuation/v1"]), Required, "The format of this file."),
        field("datacenter", Name, Required, "The datacenter that is drained: `$dc` in texts."),
        field(
            "datacenters",
            Map(&Record(&DATACENTER)),
            Required,
            "All datacenters, the drained one included.",
        ),
        field("limits", Record(&LIMITS), Optional, "What no single person overrides."),
        field(
            "budgets",
            Map(&Number { min: 0.0, max: f64::INFINITY }),
            Optional,
            "What tasks share, and how much there is of it: a link, a reserve of capacity.",
        ),
        field("services", List(&Name), Required, "The services that leave and come back."),
        field(
            "scrape_interval",
            Duration,
            Default("15s"),
            "How often the metrics of its conditions are scraped.",
        ),
        field(
            "keep_drained",
            Choice(&["always", "disaster", "never"]),
            Default("disaster"),
            "Whether knobs that a drain has left and that are found elsewhere afterwards are put \
             back at once: after every drain, after those in disaster mode, or after none.",
        ),
        field("health", List(&Condition), Optional, "What must hold for every step of every task."),
        field(
            "drain",
            List(&Record(&JOIN)),
            Optional,
            "What tasks of different services wait for on the way out.",
        ),
        field("restore", List(&Record(&JOIN)), Optional, "The same on the way back."),
    ],
    one_of: &[],
};

pub(crate) static DATACENTER: Shape = Shape {
    name: "a datacenter",
    about: "How much it can serve.",
    fields: &[
        field(
            "capacity",
            Number { min: 0.0, max: LOAD_MAX },
            Required,
            "How much it can serve, in the unit of the services' `load`.",
        ),
        field(
            "line",
            Share { above_zero: true },
            Default("75%"),
            "The share of its capacity that may be used.",
        ),
    ],
    one_of: &[],
};

pub(crate) static LIMITS: Shape = Shape {
    name: "limits",
    about: "What no single person overrides.",
    fields: &[
        field(
            "serving_min",
            Integer { min: 0, max: 10_000 },
            Default("1"),
            "Datacenters that serve, at least.",
        ),
        field(
            "drained_max",
            Share { above_zero: true },
            Default("50%"),
            "The share of all capacity that is drained, at most.",
        ),
    ],
    one_of: &[],
};

pub(crate) static JOIN: Shape = Shape {
    name: "a join",
    about: "What a task of one service waits for in others.",
    fields: &[
        field("task", Reference, Required, "The task that waits: `service.task`."),
        field("after", List(&Reference), Optional, "Tasks that must be complete before."),
        field("after_weak", List(&Reference), Optional, "The same, but a disaster may override."),
    ],
    one_of: &[],
};

pub(crate) static TEMPLATE: Shape = Shape {
    name: "a template",
    about: "A machine of stages with parameters, from which tasks are made.",
    fields: &[
        field("pharos", Choice(&["template/v1"]), Required, "The format of this file."),
        field("template", Name, Required, "What tasks call it."),
        field("about", Text, Optional, "What it does, for people."),
        field("parameters", Map(&Record(&PARAMETER)), Optional, "What a task gives it."),
        field(
            "stages",
            Map(&Record(&STAGE)),
            Required,
            "What it does. The first one is where it begins.",
        ),
        field(
            "undo",
            Record(&UNDO),
            Optional,
            "How a revert undoes it. By default its knobs are put back, the last one first.",
        ),
    ],
    one_of: &[],
};

pub(crate) static UNDO: Shape = Shape {
    name: "an undo",
    about: "What a revert does before it puts knobs back.",
    fields: &[
        field("after", Text, Required, "It is done once this stage has had its effect."),
        field(
            "if_given",
            Name,
            Optional,
            "It applies only to tasks that give this parameter; others put their knobs back.",
        ),
        field(
            "needs",
            List(&Name),
            Optional,
            "Parameters without which it cannot be done: a revert is then refused.",
        ),
        field(
            "stages",
            Map(&Record(&STAGE)),
            Required,
            "What it does. The first one is where it begins.",
        ),
    ],
    one_of: &[],
};

pub(crate) static PARAMETER: Shape = Shape {
    name: "a parameter",
    about: "Something that a task gives to its template. Stages use it as `$name`.",
    fields: &[
        field("type", Choice(super::stages::ARGUMENT_KINDS), Required, "What it must be."),
        field("choices", List(&Text), Optional, "What is accepted, if its type is `choice`."),
        field("required", Truth, Default("false"), "Whether a task must give it."),
        field(
            "together_with",
            List(&Name),
            Optional,
            "If it is given, one of these parameters must be too.",
        ),
        field("needs", List(&Name), Optional, "If it is given, all of these must be too."),
        field(
            "exact",
            Truth,
            Default("false"),
            "A condition without tolerance: `equals`, or `at_most: 0`. In built-in templates alone.",
        ),
        field("default", Value, Optional, "What it is if a task does not give it."),
        field("about", Text, Optional, "What it is for, for people."),
    ],
    one_of: &[],
};

const NEXT_ABOUT_DONE: &str =
    "The stage after this one is done, or `exit done` or `exit failed`. The next one unless told.";

pub(crate) static STAGE: Shape = Shape {
    name: "a stage",
    about: "One step of a template, and where each of its outcomes leads.",
    fields: &[
        field("stage", Choice(super::stages::STAGE_NAMES), Required, "What it does."),
        field("with", Map(&Value), Optional, "Its inputs."),
        field(
            "timeout",
            Timeout,
            Optional,
            "After that long it is late: a duration, or a parameter that is one.",
        ),
        field("done", Text, Optional, NEXT_ABOUT_DONE),
        field("failed", Text, Default("exit failed"), "Where it leads if it fails."),
        field("late", Text, Default("exit failed"), "Where it leads if it is late."),
        field(
            "retry",
            Text,
            Optional,
            "The stage that a retry begins with if this one fails or is late: itself by default.",
        ),
        field(
            "interruptible",
            Truth,
            Default("true"),
            "Whether health, limits, a pause or an abort that holds may keep it from going on. \
             Not so between a fence and what lifts it, in built-in templates alone.",
        ),
    ],
    one_of: &[],
};
