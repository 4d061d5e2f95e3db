//! XML messages of a CAS server. They are parsed without a document type, so that no entity expands.

use roxmltree::{Document, Node, ParsingOptions};

use crate::query;

/// Longest message in bytes. The parser compares each attribute of an element with all others, so the time of a message
/// grows with the square of its length.
pub(super) const BYTES_MAX: usize = 64 << 10;
/// Most nodes of a message.
const NODES_MAX: u32 = 10_000;
/// Longest ticket and user name in bytes.
const TEXT_BYTES_MAX: usize = 1024;

fn parse(text: &str) -> Option<Document<'_>> {
    if text.len() > BYTES_MAX {
        return None;
    }
    let options = ParsingOptions { nodes_limit: NODES_MAX, ..ParsingOptions::default() };
    Document::parse_with_options(text, options).ok()
}

fn child<'a, 'i>(node: Node<'a, 'i>, name: &str) -> Option<Node<'a, 'i>> {
    node.children().find(|node| node.is_element() && node.tag_name().name() == name)
}

fn text_of(node: Node<'_, '_>) -> Option<String> {
    // Comments split a text: `a<!-- -->b` must not be read as `a`.
    let text: String = node.children().filter(Node::is_text).filter_map(|node| node.text()).collect();
    let text = text.trim();
    (!text.is_empty() && text.len() <= TEXT_BYTES_MAX).then(|| text.to_owned())
}

/// The user of a successful validation (CAS 3.0 §2.5.3).
pub(crate) fn validated_user(body: &[u8]) -> Option<String> {
    let document = parse(std::str::from_utf8(body).ok()?)?;
    let root = document.root_element();
    if root.tag_name().name() != "serviceResponse" {
        return None;
    }
    text_of(child(child(root, "authenticationSuccess")?, "user")?)
}

/// The ticket in a logout request, which is the body or a member of a form (CAS 3.0 §2.3.3).
pub(crate) fn logged_out_ticket(body: &[u8]) -> Option<String> {
    let form = query::pairs(body).find(|(name, _)| name.as_ref() == b"logoutRequest");
    let message = match form {
        Some((_, value)) => value.into_owned(),
        None => body.to_vec(),
    };
    let message = String::from_utf8(message).ok()?;
    let document = parse(message.trim_start())?;
    let root = document.root_element();
    if root.tag_name().name() != "LogoutRequest" {
        return None;
    }
    text_of(child(root, "SessionIndex")?)
}
