//! `libri-1` against what the original program printed (testdata/libri/vectors.json): keys and ciphers.
//! The documents of the same file are in `document/tests/libri.rs`.
#![allow(clippy::unwrap_used, reason = "tests")]

use crypto::{
    AuthorKey, Eek, Kek, KekContext, NetworkId, PublicKey, ReaderKey, RecordId, SecretKey, Suite,
    jwt,
};

const SUITE: Suite = Suite::Libri1;

struct Vectors(serde_json::Value);

impl Vectors {
    fn load() -> Self {
        let path = format!("{}/../../testdata/libri/vectors.json", testkit::manifest!());
        Self(serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap())
    }

    fn text(&self, name: &str) -> &str {
        self.0[name].as_str().unwrap_or_else(|| panic!("vectors.json has no {name}"))
    }

    fn bytes(&self, name: &str) -> Vec<u8> {
        hex::decode(self.text(name)).unwrap()
    }

    fn secret(&self, name: &str) -> SecretKey {
        SecretKey::from_slice(&self.bytes(name)).unwrap()
    }

    fn eek(&self) -> Eek {
        let bytes = self.bytes("eek_aes|page_iv_seed|hmac|metadata_iv");
        Eek::from_bytes(&bytes.try_into().unwrap())
    }

    fn kek(&self) -> Kek {
        let (author, reader) = (self.secret("author_priv"), self.secret("reader_priv"));
        let context = KekContext {
            network: NetworkId::NONE,
            entry: RecordId::new([1; 32]),
            author: AuthorKey::new(author.public()),
            reader: ReaderKey::new(reader.public()),
        };
        let kek = Kek::derive(SUITE, &author, &reader.public(), &context);
        let other = Kek::derive(SUITE, &reader, &author.public(), &context);
        assert_eq!(*kek.to_bytes(), *other.to_bytes());
        kek
    }
}

#[test]
fn keys_and_the_shared_x() {
    let vectors = Vectors::load();
    let (author, reader) = (vectors.secret("author_priv"), vectors.secret("reader_priv"));
    assert_eq!(author.public().to_string(), vectors.text("author_pub"));
    assert_eq!(reader.public().to_string(), vectors.text("reader_pub"));
    assert_eq!(author.shared_x(&reader.public())[..], vectors.bytes("ecdh_x"));
    // Informative: the original's ring position is the x-coordinate.
    assert_eq!(vectors.text("author_pub")[2..], *vectors.text("author_id"));
}

#[test]
fn the_kek_and_the_sealed_eek() {
    let vectors = Vectors::load();
    let kek = vectors.kek();
    assert_eq!(kek.to_bytes()[..], vectors.bytes("kek_aes|iv|hmac"));
    let (sealed, mac) = kek.seal_eek(SUITE, &vectors.eek());
    assert_eq!(sealed[..], vectors.bytes("eek_ciphertext"));
    assert_eq!(mac[..], vectors.bytes("eek_ciphertext_mac"));
    let opened = kek.open_eek(SUITE, &sealed, &mac).unwrap();
    assert_eq!(*opened.to_bytes(), *vectors.eek().to_bytes());
}

#[test]
fn pages_and_their_macs() {
    let vectors = Vectors::load();
    let eek = vectors.eek();
    let pages = vectors.0["pages"].as_array().unwrap();
    assert_eq!(pages.len(), 4);
    for page in pages {
        let field = |name: &str| page[name].as_str().unwrap();
        let index = field("index").parse().unwrap();
        let plaintext = field("plaintext").as_bytes();
        let sealed = eek.seal_page(SUITE, index, plaintext.to_vec()).unwrap();
        assert_eq!(hex::encode(&sealed), field("ciphertext"));
        assert_eq!(hex::encode(SUITE.mac(&eek.mac_key(SUITE), &sealed)), field("mac"));
        assert_eq!(eek.open_page(SUITE, index, &sealed).unwrap(), plaintext);
    }
}

#[test]
fn metadata_and_its_mac() {
    let vectors = Vectors::load();
    let plain = vectors.bytes("metadata_plain");
    let (sealed, mac) = vectors.eek().seal_metadata(SUITE, plain.clone()).unwrap();
    assert_eq!(sealed, vectors.bytes("metadata_ciphertext"));
    assert_eq!(mac[..], vectors.bytes("metadata_mac"));
    assert_eq!(vectors.eek().open_metadata(SUITE, &sealed, &mac).unwrap(), plain);
}

#[test]
fn record_ids_are_sha_256_of_the_document() {
    let vectors = Vectors::load();
    for (document, key) in [
        ("entry_doc", "entry_key"),
        ("envelope_doc", "envelope_key"),
        ("page_doc", "page_key"),
        ("publication", "publication_key"),
    ] {
        assert_eq!(SUITE.id(&vectors.bytes(document)).to_string(), vectors.text(key));
    }
}

#[test]
fn the_signed_request() {
    let vectors = Vectors::load();
    let author = PublicKey::from_slice(&vectors.bytes("author_pub")).unwrap();
    let request = vectors.bytes("get_request");
    let token = vectors.text("jwt");
    assert_eq!(jwt::verify(token, &author, &request), Ok(()));
    assert_eq!(jwt::HEADER, vectors.text("jwt_header"));
    assert_eq!(jwt::claims(&request), vectors.text("jwt_claims"));
    // Ours differs in the signature's nonce alone.
    let ours = jwt::sign(&vectors.secret("author_priv"), &request);
    let parts = |token: &str| token.rsplit_once('.').unwrap().0.to_owned();
    assert_eq!(parts(&ours), parts(token));
    assert_eq!(jwt::verify(&ours, &author, &request), Ok(()));
    let length = vectors.0["jwt_sig_len"].as_u64().unwrap();
    assert_eq!(length, 64);
    assert_eq!(token.rsplit_once('.').unwrap().1.len() as u64, (length * 4).div_ceil(3));
    let reader = PublicKey::from_slice(&vectors.bytes("reader_pub")).unwrap();
    assert!(jwt::verify(token, &reader, &request).is_err());
    assert!(jwt::verify(token, &author, &request[1..]).is_err());
}
