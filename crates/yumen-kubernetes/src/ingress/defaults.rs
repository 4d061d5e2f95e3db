//! The settings of all Ingresses: flags, and the ConfigMap of the controller over them.

use std::sync::Arc;

use yumen_base::problem::Problem;

use crate::engine::{DerivedOutput, ReferencedObject, TrackedView, UnitOutput};
use crate::ingress_nginx::{ControllerProblem, read_config_map};

pub(crate) fn translate_defaults(view: &TrackedView<'_>) -> UnitOutput {
    let mut output = UnitOutput::default();
    let options = &view.settings().ingress;
    if !options.is_enabled {
        return output;
    }
    let flags = &options.controller;
    let of_flags = options.flag_problems.iter().cloned();
    output.problems.extend(of_flags.map(|one| problem_of("kubernetes.ingress.flags", one)));
    let found = flags.flags.config_map.as_ref().map(|key| (key, view.config_map(&key.namespace, &key.name)));
    let settings = match found {
        Some((key, ReferencedObject::Found(object))) => {
            let (settings, problems) = read_config_map(&object.data, flags.clone());
            output.problems.extend(problems.into_iter().map(|one| problem_of(&key.to_string(), one)));
            settings
        }
        Some((key, ReferencedObject::Missing)) => {
            let message = "the ConfigMap of --configmap does not exist: all its keys have their defaults";
            output.problems.push(Problem::warning(key.to_string(), "", message));
            flags.clone()
        }
        Some((_, ReferencedObject::Pending)) | None => flags.clone(),
    };
    output.derived = Some(DerivedOutput::IngressDefaults(Arc::new(settings)));
    output
}

fn problem_of(object: &str, found: ControllerProblem) -> Problem {
    let problem = match found.is_error {
        true => Problem::error(object, &*found.key, found.message),
        false => Problem::warning(object, &*found.key, found.message),
    };
    match found.way_over {
        Some(way) => problem.hint(way),
        None => problem,
    }
}
