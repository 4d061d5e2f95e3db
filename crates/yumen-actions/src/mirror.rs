//! Mirrors with a share of the requests.

use yumen_config::resource::MirrorSpec;
use yumen_http::Framing;
use yumen_plugin::{Exchange, MirrorTarget, UpstreamSlot};

use crate::ActionUpstreams;

/// One mirror of a route.
#[derive(Debug, Clone)]
pub(crate) struct MirrorAction {
    id: Box<str>,
    target: MirrorTarget,
    numerator: u32,
    denominator: u32,
    body_bytes_max: usize,
}

impl MirrorAction {
    pub(crate) fn build(written: &MirrorSpec, at: usize, upstreams: &dyn ActionUpstreams) -> MirrorAction {
        let id = written.upstream_id.as_str();
        let upstream = upstreams.upstream(id).unwrap_or_else(|| {
            let path = format!("actions.mirrors[{at}].upstream_id");
            let message = format!("upstream {id} does not exist or is broken: no copies are sent");
            upstreams.warn(&path, message, "create or fix the upstream");
            UpstreamSlot::default()
        });
        MirrorAction {
            id: id.into(),
            target: MirrorTarget { upstream, path: None, is_prefix: false },
            numerator: written.numerator,
            denominator: written.denominator.max(1),
            body_bytes_max: written.body_bytes_max as usize,
        }
    }

    /// Draws whether a request is copied, by a random number.
    fn draws(&self, random: u64) -> bool {
        random % u64::from(self.denominator) < u64::from(self.numerator)
    }

    pub(crate) fn remark(&self) -> String {
        let share = match self.numerator == self.denominator {
            true => "such requests".to_owned(),
            false => format!("{} of {} such requests", self.numerator, self.denominator),
        };
        format!("copies {share} to upstream {}", self.id)
    }
}

/// Mark of an exchange whose mirrors were drawn.
struct DrawnMirrors;

/// Draws the mirrors of a request. The result is the size up to which its body must be buffered first.
pub(crate) fn draw(mirrors: &[MirrorAction], ex: &mut Exchange<'_>) -> Option<usize> {
    // The second call, after the body was buffered, must not draw again.
    if mirrors.is_empty() || ex.note::<DrawnMirrors>().is_some() {
        return None;
    }
    ex.leave(DrawnMirrors);
    let length = match ex.request.framing {
        Framing::None => Some(0),
        Framing::Length(length) if ex.body.buffered.is_none() => usize::try_from(length).ok(),
        _ => ex.body.buffered.as_ref().map(|body| body.len()),
    };
    let mut bytes_max = None;
    for mirror in mirrors {
        if !mirror.draws(ex.host.random()) {
            continue;
        }
        // A larger body, or one of unknown length, is not copied; the worker counts the lost copy.
        let fits = length.is_some_and(|length| length <= mirror.body_bytes_max);
        if fits && ex.body.buffered.is_none() && ex.request.framing != Framing::None {
            bytes_max = bytes_max.max(Some(mirror.body_bytes_max));
        }
        if fits || ex.body.buffered.is_none() {
            ex.upstream.mirrors.push(mirror.target.clone());
        }
    }
    bytes_max
}
