use super::SavedDocuments;
use crate::endpoints::inputs::{KnownDocument, KnownDocuments};

#[test]
fn saved_documents_return_once_and_unused_ones_stay_in_the_file() {
    let directory = std::env::temp_dir().join(format!("yumen-documents-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let document = |bytes: &[u8]| KnownDocument { bytes: bytes.to_vec(), fetched_ms: 7 };
    let known: KnownDocuments =
        [("a".to_owned(), document(b"1")), ("b".to_owned(), document(b"\xff2"))].into();
    SavedDocuments::open(&directory).save(&known);
    let again = SavedDocuments::open(&directory);
    assert_eq!(again.take("a"), Some(document(b"1")));
    assert_eq!(again.take("a"), None);
    again.save(&[("c".to_owned(), document(b"3"))].into());
    let last = SavedDocuments::open(&directory);
    assert_eq!((last.take("a"), last.take("b")), (None, Some(document(b"\xff2"))));
    assert_eq!(last.take("c"), Some(document(b"3")));
    std::fs::remove_dir_all(&directory).unwrap();
}
