//! Views of an exchange by phase: a plugin reads all of the exchange, and changes only the state that the
//! phase still has an effect on.

use std::ops::Deref;
use std::sync::Arc;

use yumen_http::{Fields, RequestHead};

use super::Exchange;
use crate::{DeferredBody, ResponseCoding};

macro_rules! phase_view {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        pub struct $name<'e, 's> {
            ex: &'e mut Exchange<'s>,
        }

        impl<'e, 's> $name<'e, 's> {
            /// A view of this exchange.
            #[inline]
            pub fn new(ex: &'e mut Exchange<'s>) -> $name<'e, 's> {
                $name { ex }
            }

            /// [`Exchange::leave`].
            pub fn leave<T: 'static>(&mut self, note: T) {
                self.ex.leave(note);
            }

            /// The values of type `T`, the latest first.
            pub fn notes_mut<T: 'static>(&mut self) -> impl Iterator<Item = &mut T> {
                self.ex.plugin_state.notes_mut()
            }

            /// [`Exchange::note_mut`].
            pub fn note_mut<T: 'static>(&mut self) -> Option<&mut T> {
                self.ex.note_mut()
            }
        }

        impl<'s> Deref for $name<'_, 's> {
            type Target = Exchange<'s>;

            #[inline]
            fn deref(&self) -> &Exchange<'s> {
                self.ex
            }
        }
    };
}

phase_view! {
    /// A stream before its upstream is chosen, while its first bytes are read.
    PrereadPhase
}

phase_view! {
    /// A request just before its head is sent to an endpoint: the upstream is chosen, the body is fixed.
    UpstreamRequestPhase
}

phase_view! {
    /// A response whose head is known and not sent yet. The request is read-only.
    ResponseHeadPhase
}

phase_view! {
    /// A response whose head is sent and whose body is on its way.
    ResponseBodyPhase
}

phase_view! {
    /// An exchange that has ended, before the log phase: edits are seen by loggers and by the access log.
    LogPreparation
}

impl LogPreparation<'_, '_> {
    /// Replaces the tapped or buffered request body that loggers read.
    pub fn replace_request_body(&mut self, body: Vec<u8>) {
        match (&mut self.ex.body.buffered, &mut self.ex.plugin_state.taps) {
            (buffered @ Some(_), _) => *buffered = Some(body.into()),
            (None, Some(taps)) => {
                if let Some(tap) = &mut taps.request {
                    tap.set_bytes(body);
                }
            }
            (None, None) => {}
        }
    }

    /// Replaces the tapped response body that loggers read.
    pub fn replace_response_body(&mut self, body: Vec<u8>) {
        if let Some(tap) = self.ex.plugin_state.taps.as_mut().and_then(|taps| taps.response.as_mut()) {
            tap.set_bytes(body);
        }
    }

    /// The response fields that loggers read, if a plugin of the chain reads them.
    pub fn sent_fields_mut(&mut self) -> Option<&mut Fields> {
        self.ex.response.visible_fields_mut()
    }

    /// The request head that loggers read.
    pub fn request_mut(&mut self) -> &mut RequestHead {
        &mut self.ex.request
    }
}

impl PrereadPhase<'_, '_> {
    /// Records the client identifier of an MQTT CONNECT packet; no effect on a request.
    pub fn set_mqtt_client_id(&mut self, client_id: &str) {
        if let Some(stream) = &mut self.ex.client.stream {
            stream.mqtt_client_id = Some(client_id.into());
        }
    }
}

impl UpstreamRequestPhase<'_, '_> {
    /// The request head that the endpoint receives.
    pub fn request_mut(&mut self) -> &mut RequestHead {
        &mut self.ex.request
    }
}

impl ResponseHeadPhase<'_, '_> {
    /// Has the plugin called with each chunk of the body ([`Plugin::response_body`](crate::Plugin::response_body)).
    /// Without this call the body is forwarded unread.
    pub fn edit_body(&mut self) {
        self.ex.response.edit_body();
    }

    /// Has the begin of the response body copied for the log phase. The largest request wins.
    pub fn tap_response_body(&mut self, bytes_max: usize) {
        self.ex.tap_response_body(bytes_max);
    }

    /// Offers to code the body of the response. Between codings that the client prefers equally, the first
    /// offer wins.
    pub fn offer_coding(&mut self, coding: Arc<dyn ResponseCoding>) {
        self.ex.offer_coding(coding);
    }
}

impl ResponseBodyPhase<'_, '_> {
    /// Makes the chunk wait for a computation. Its result replaces the data of the chunk that the plugin
    /// returns; `None` aborts the response. The plugins after this one run when the result is available.
    pub fn defer_body(&mut self, computing: DeferredBody) {
        self.ex.response.deferred_body = Some(computing);
    }
}
