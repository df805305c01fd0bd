//! Templates: whether their stages have what they need, and lead to an end.

use super::super::arguments::{self, parse};
use super::super::expand::{done_of, position};
use super::super::problem::{Placed, Problems};
use super::super::shape::Kind;
use super::super::spec::{Parameter, Stage, Target, Template, Timeout, Undo};
use super::super::stages::{ArgumentKind, Input, PARAMETERS_MAX, STAGES_MAX, StageShape};
use super::super::tree::Node;
use super::super::walk::Walk;
use super::super::words::{self, Piece, did_you_mean};

/// Variables that every text has, so that no parameter may take their names.
pub(super) const OUTER: [&str; 2] = ["dc", "service"];

pub(super) fn check(template: &Template, problems: &mut Problems) {
    // One file that nothing needs must not keep a restore waiting.
    if !check_size(template, problems) {
        return;
    }
    for parameter in &template.parameters {
        check_parameter(template, parameter, problems);
    }
    check_stages(template, problems);
    if let Some(undo) = &template.undo {
        check_undo(template, undo, problems);
        check_stages(&undo.template, problems);
    }
}

/// What is done behind a fence takes more than a template can say: the engine knows it
/// of `Promote`. So no other has what a fence takes.
pub(super) fn check_unfenced(template: &Template, problems: &mut Problems) {
    let remedy = "accepted: `template: Promote` with `fence`, `caught_up`, `back_fence` and \
                  `back_caught_up`, and tasks of your own before and after it";
    for parameter in template.parameters.iter().filter(|own| own.exact) {
        let what = "`exact` is for built-in templates: no other promotes behind a fence";
        problems.error(parameter.name.at, what, remedy);
    }
    let undo = template.undo.iter().flat_map(|undo| &undo.template.stages);
    for stage in template.stages.iter().chain(undo).filter(|own| !own.interruptible) {
        let what = "`interruptible: false` is for built-in templates: no other promotes behind a \
                    fence";
        problems.error(stage.name.at, what, remedy);
    }
}

fn check_size(template: &Template, problems: &mut Problems) -> bool {
    let mut too_many = |count: usize, max: usize, what: &str| {
        if count > max {
            let name = &template.name.value;
            problems.error(
                template.name.at,
                format!("the template `{name}` has {count} {what}"),
                format!("accepted: up to {max}"),
            );
        }
    };
    too_many(template.parameters.len(), PARAMETERS_MAX, "parameters");
    too_many(template.stages.len(), STAGES_MAX, "stages");
    let undo = template.undo.as_ref().map_or(0, |undo| undo.template.stages.len());
    too_many(undo, STAGES_MAX, "stages in its `undo`");
    !template.is_too_large()
}

/// What an undo names must be there.
fn check_undo(template: &Template, undo: &Undo, problems: &mut Problems) {
    if position(template, &undo.after.value).is_none() {
        let stages = template.stages.iter().map(|stage| stage.name.value.as_str());
        problems.error(
            undo.after.at,
            format!("there is no stage `{}`", undo.after.value),
            did_you_mean(&undo.after.value, stages),
        );
    }
    check_known(template, undo.needs.iter().chain(&undo.if_given), problems);
}

/// Parameters that are named must be there.
fn check_known<'a>(
    template: &Template,
    names: impl Iterator<Item = &'a Placed<String>>,
    problems: &mut Problems,
) {
    for name in names.filter(|name| template.parameter(&name.value).is_none()) {
        let known: Vec<_> = template.parameters.iter().map(|own| own.name.value.as_str()).collect();
        problems.error(
            name.at,
            format!("there is no parameter `{}`", name.value),
            did_you_mean(&name.value, known),
        );
    }
}

fn check_stages(template: &Template, problems: &mut Problems) {
    for (at, stage) in template.stages.iter().enumerate() {
        check_inputs(template, stage, problems);
        check_targets(template, at, problems);
    }
    if template.stages.is_empty() {
        problems.error(
            template.name.at,
            format!("the template `{}` has no stage", template.name.value),
            "add one under `stages:`",
        );
    }
    check_ways(template, problems);
}

fn check_parameter(template: &Template, parameter: &Parameter, problems: &mut Problems) {
    let name = &parameter.name;
    if OUTER.contains(&name.value.as_str()) || name.value.contains('-') {
        problems.error(
            name.at,
            format!("a parameter cannot be called `{}`", name.value),
            "accepted: letters, digits and `_`, but neither `dc` nor `service`",
        );
    } else if !is_used(template, &name.value) {
        problems.error(
            name.at,
            format!("no stage uses the parameter `{}`", name.value),
            format!("use it as `${}`, or drop it", name.value),
        );
    }
    let others = parameter.together_with.iter().chain(&parameter.needs);
    check_known(template, others, problems);
    let Some(kind) = parameter.kind else { return };
    match (kind, parameter.choices_at) {
        (ArgumentKind::Choice, None) => problems.error(
            name.at,
            format!("the choice `{}` has no choices", name.value),
            "add `choices:` with a list of what is accepted",
        ),
        (ArgumentKind::Choice, Some(_)) | (_, None) => {}
        (_, Some(at)) => problems.error(
            at,
            format!("`{}` has choices, but is a {}", name.value, kind.name()),
            "drop `choices`, or write `type: choice`",
        ),
    }
    let Some(default) = &parameter.default else { return };
    if parameter.required {
        problems.error(
            default.at,
            format!("`{}` is required, so its default is never used", name.value),
            "drop `default`, or drop `required`",
        );
    }
    check_value(kind, &parameter.choices, default, &name.value, OUTER.to_vec(), problems);
}

/// A value as it is written, for a parameter or for an input.
pub(super) fn check_value(
    kind: ArgumentKind,
    choices: &[String],
    node: &Node,
    label: &str,
    variables: Vec<&str>,
    problems: &mut Problems,
) {
    if kind == ArgumentKind::Condition {
        let variables = variables.into_iter().map(str::to_owned).collect();
        return Walk { problems, variables }.check(&Kind::Condition, node, label);
    }
    // A letter in the place of every variable: what they are is not known yet.
    if let Err(accepted) = parse(kind, choices, node, &|_| Some("x".into())) {
        let near = (node.scalar().filter(|_| kind == ArgumentKind::Choice))
            .and_then(|scalar| words::nearest(&scalar.text, choices.iter().map(String::as_str)));
        problems.error(
            node.at,
            format!("`{label}` is {}", node.describe()),
            near.map_or(accepted, |near| format!("did you mean `{near}`?")),
        );
    }
}

fn is_used(template: &Template, parameter: &str) -> bool {
    let undo = template.undo.iter().flat_map(|undo| &undo.template.stages);
    template.stages.iter().chain(undo).any(|stage| uses(stage, parameter))
}

/// Whether a stage names the parameter.
fn uses(stage: &Stage, parameter: &str) -> bool {
    fn within(node: &Node, parameter: &str) -> bool {
        let here = node.scalar().is_some_and(|scalar| {
            let pieces = words::pieces(&scalar.text);
            pieces.iter().any(|(_, _, piece)| *piece == Piece::Variable(parameter))
        });
        here || node.items().iter().any(|item| within(item, parameter))
            || node.entries().iter().any(|(_, value)| within(value, parameter))
    }
    let is_timeout =
        matches!(&stage.timeout, Some(Timeout::Parameter(own)) if own.value == parameter);
    is_timeout || stage.with.iter().any(|(_, node)| within(node, parameter))
}

fn check_inputs(template: &Template, stage: &Stage, problems: &mut Problems) {
    let Some(shape) = stage.shape else { return };
    for (name, node) in &stage.with {
        match shape.inputs.iter().find(|input| input.name == name.value) {
            Some(input) => check_input(template, input, node, problems),
            None => problems.error(
                name.at,
                format!("the stage {} has no input `{}`", shape.name, name.value),
                did_you_mean(&name.value, shape.inputs.iter().map(|input| input.name)),
            ),
        }
    }
    for input in shape.inputs.iter().filter(|input| input.required) {
        // One that was misspelt is there.
        let known = || shape.inputs.iter().map(|known| known.name);
        let meant = |name: &str| words::nearest(name, known()) == Some(input.name);
        if !stage.with.iter().any(|(name, _)| meant(&name.value)) {
            problems.error(
                stage.name.at,
                format!("the stage {} needs the input `{}`", shape.name, input.name),
                missing_input(shape, input),
            );
        }
    }
}

fn missing_input(shape: &StageShape, input: &Input) -> String {
    debug_assert!(shape.inputs.iter().any(|other| other.name == input.name));
    format!("add it under `with:`; {}", arguments::accepted(input.kind, &[]))
}

fn check_input(template: &Template, input: &Input, node: &Node, problems: &mut Problems) {
    let whole = node.scalar().and_then(|scalar| words::whole_variable(&scalar.text));
    if let Some(parameter) = whole.and_then(|name| template.parameter(name)) {
        let Some(given) = parameter.kind else { return };
        if !input.kind.takes(given) {
            let taken: Vec<_> = input.kind.taken().map(|kind| format!("`{kind}`")).collect();
            problems.error(
                node.at,
                format!(
                    "`{}` is the parameter `{}`, a {}",
                    input.name,
                    parameter.name.value,
                    given.name()
                ),
                format!("accepted: a parameter of type {}", taken.join(", ")),
            );
        }
        return;
    }
    let choices: Vec<_> = input.choices.iter().map(|choice| (*choice).to_owned()).collect();
    let parameters = template.parameters.iter().map(|parameter| parameter.name.value.as_str());
    let variables = OUTER.into_iter().chain(parameters).collect();
    check_value(input.kind, &choices, node, input.name, variables, problems);
}

fn check_targets(template: &Template, at: usize, problems: &mut Problems) {
    let stage = &template.stages[at];
    for target in [&stage.done, &stage.failed, &stage.late].into_iter().flatten() {
        let Target::Stage(name) = &target.value else { continue };
        if position(template, name).is_none() {
            let stages = template.stages.iter().map(|stage| stage.name.value.as_str());
            let known: Vec<_> = stages.chain(["exit done", "exit failed"]).collect();
            problems.error(
                target.at,
                format!("there is no stage `{name}`"),
                did_you_mean(name, known),
            );
        }
    }
    if let Some(retry) = &stage.retry
        && position(template, &retry.value).is_none()
    {
        let stages = template.stages.iter().map(|stage| stage.name.value.as_str());
        problems.error(
            retry.at,
            format!("there is no stage `{}`", retry.value),
            did_you_mean(&retry.value, stages),
        );
    }
    if let Some(Timeout::Parameter(name)) = &stage.timeout {
        let durations = template.parameters.iter();
        let durations = durations.filter(|own| own.kind == Some(ArgumentKind::Duration));
        let durations: Vec<&str> = durations.map(|own| own.name.value.as_str()).collect();
        if !durations.contains(&name.value.as_str()) {
            problems.error(
                name.at,
                format!("there is no parameter `{}` of type duration", name.value),
                did_you_mean(&name.value, durations),
            );
        }
    }
    if let (Some(late), None) = (&stage.late, &stage.timeout) {
        problems.error(
            late.at,
            format!("the stage `{}` is never late", stage.name.value),
            "add `timeout:`, or drop `late`",
        );
    }
}

/// Every stage must be reached, and must have a way out.
fn check_ways(template: &Template, problems: &mut Problems) {
    let mut reached = vec![false; template.stages.len()];
    let mut open: Vec<usize> = (0..template.stages.len().min(1)).collect();
    while let Some(at) = open.pop() {
        if !std::mem::replace(&mut reached[at], true) {
            open.extend(ways(template, at).iter().filter_map(|way| stage_of(template, way)));
        }
    }
    // An unknown stage was noted by then: it counts as a way out.
    let mut leaves: Vec<bool> = (0..template.stages.len())
        .map(|at| ways(template, at).iter().any(|way| stage_of(template, way).is_none()))
        .collect();
    for _ in 0..template.stages.len() {
        for at in 0..template.stages.len() {
            leaves[at] |= (ways(template, at).iter())
                .filter_map(|way| stage_of(template, way))
                .any(|next| leaves[next]);
        }
    }
    for (at, stage) in template.stages.iter().enumerate() {
        let Placed { at: place, value: name } = &stage.name;
        if !reached[at] {
            problems.error(
                *place,
                format!("no way leads to the stage `{name}`"),
                "lead an outcome of another stage to it, or drop it",
            );
        } else if !leaves[at] {
            problems.error(
                *place,
                format!("no way leads from the stage `{name}` to an exit"),
                "lead one of its outcomes to `exit done` or `exit failed`",
            );
        }
    }
}

/// Where the outcomes of a stage lead. Some stages cannot fail, but none can be
/// late without a timeout.
fn ways(template: &Template, at: usize) -> Vec<Target> {
    let stage = &template.stages[at];
    let mut ways = vec![done_of(template, at)];
    ways.extend(stage.failed.as_ref().map(|failed| failed.value.clone()));
    if stage.failed.is_none() && can_fail(stage) {
        ways.push(Target::Exit(crate::plan::Exit::Failed));
    }
    if stage.timeout.is_some() {
        ways.push(
            stage
                .late
                .as_ref()
                .map_or(Target::Exit(crate::plan::Exit::Failed), |late| late.value.clone()),
        );
    }
    ways
}

/// Waiting does not fail by itself.
fn can_fail(stage: &Stage) -> bool {
    let waits = ["Await", "TimedWait", "Barrier", "ChangeLog"];
    stage.shape.is_none_or(|shape| !waits.contains(&shape.name))
}

fn stage_of(template: &Template, target: &Target) -> Option<usize> {
    match target {
        Target::Stage(name) => position(template, name),
        Target::Exit(_) => None,
    }
}
