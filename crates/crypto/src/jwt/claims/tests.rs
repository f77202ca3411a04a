use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use proptest::prelude::*;

use super::*;
use crate::KeyError;
use crate::jwt::TOKEN_BYTES_MAX;

fn key(byte: u8) -> SecretKey {
    SecretKey::from_bytes(&[byte; 32]).expect("a small scalar is a key")
}

fn claims() -> Claims {
    Claims {
        hash: message_hash(b"message"),
        method: "/holdfast.v1.Librarian/Find".into(),
        audience: PeerId::new(key(1).public()),
        network: NetworkId::new([7; 32]),
        issued: 1_000,
        expires: 1_060,
        id: [9; 32],
    }
}

fn verify(token: &str, now: u64) -> Result<Claims, JwtError> {
    let of = claims();
    let expected = Expected {
        method: &of.method,
        audience: &of.audience,
        network: &of.network,
        id: &of.id,
        now,
    };
    verify_claims(token, &key(2).public(), &expected)
}

#[test]
fn a_token_has_its_bytes() {
    let token = sign_claims(&key(2), &claims());
    let (signed, signature) = token.rsplit_once('.').expect("three parts");
    let (header, body) = signed.split_once('.').expect("three parts");
    let text =
        |part| String::from_utf8(URL_SAFE_NO_PAD.decode(part).expect("base64")).expect("text");
    assert_eq!(text(header), r#"{"alg":"ES256K","typ":"JWT"}"#);
    assert_eq!(
        text(body),
        concat!(
            r#"{"hash":"q1MKE-RZFJgrefm34_uplM_R8_si9xzqGvvwK0YMbR0=","#,
            r#""method":"/holdfast.v1.Librarian/Find","#,
            r#""aud":"031b84c5567b126440995d3ed5aaba0565d71e1834604819ff9c17f5e9d5dd078f","#,
            r#""net":"0707070707070707070707070707070707070707070707070707070707070707","#,
            r#""iat":1000,"exp":1060,"#,
            r#""jti":"0909090909090909090909090909090909090909090909090909090909090909"}"#
        )
    );
    assert_eq!(URL_SAFE_NO_PAD.decode(signature).expect("base64").len(), 64);
    assert_eq!(verify(&token, 1_000), Ok(claims()));
}

#[test]
fn each_claim_is_checked() {
    type Change = fn(&mut Claims);
    let cases: [(Change, JwtError); 6] = [
        (|c| c.network = NetworkId::new([8; 32]), JwtError::Network),
        (|c| c.audience = PeerId::new(key(3).public()), JwtError::Audience),
        (|c| c.method = "/holdfast.v1.Librarian/Store".into(), JwtError::Method),
        (|c| c.id = [8; 32], JwtError::Id),
        (|c| c.expires = 1_061, JwtError::Life),
        (|c| c.expires = 1_000, JwtError::Life),
    ];
    for (change, error) in cases {
        let mut changed = claims();
        change(&mut changed);
        assert_eq!(verify(&sign_claims(&key(2), &changed), 1_000), Err(error));
    }
    let another = sign_claims(&key(3), &claims());
    assert_eq!(verify(&another, 1_000), Err(JwtError::Key(KeyError::Signature)));
}

#[test]
fn a_token_counts_from_a_little_ahead_until_its_end() {
    let token = sign_claims(&key(2), &claims());
    for now in [970, 1_000, 1_059] {
        assert!(verify(&token, now).is_ok(), "{now}");
    }
    for now in [0, 969, 1_060, u64::MAX] {
        assert!(matches!(verify(&token, now), Err(JwtError::Time { .. })), "{now}");
    }
}

#[test]
fn the_two_forms_are_not_taken_for_each_other() {
    let bare = crate::jwt::sign(&key(2), b"message");
    assert_eq!(is_bare(&bare), Ok(true));
    assert_eq!(verify(&bare, 1_000), Err(JwtError::Header));
    let full = sign_claims(&key(2), &claims());
    assert_eq!(is_bare(&full), Ok(false));
    assert_eq!(crate::jwt::verify(&full, &key(2).public(), b"message"), Err(JwtError::Header));
}

#[test]
fn a_signature_with_its_s_in_the_upper_half_is_taken_too() {
    let token = sign_claims(&key(2), &claims());
    let (signed, signature) = token.rsplit_once('.').expect("three parts");
    let mut bytes = URL_SAFE_NO_PAD.decode(signature).expect("base64");
    // n - s, by schoolbook subtraction.
    let order = hex::decode("fffffffffffffffffffffffffffffffebaaedce6af48a03bbfd25e8cd0364141");
    let mut borrow = 0i16;
    for (at, n) in order.expect("hex").into_iter().enumerate().rev() {
        let digit = i16::from(n) - i16::from(bytes[32 + at]) - borrow;
        borrow = i16::from(digit < 0);
        bytes[32 + at] = u8::try_from(digit.rem_euclid(256)).expect("a byte");
    }
    let high = format!("{signed}.{}", URL_SAFE_NO_PAD.encode(bytes));
    assert_ne!(high, token);
    assert!(verify(&high, 1_000).is_ok());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn any_claims_come_back(
        hash: [u8; 32], id: [u8; 32], network: [u8; 32], method in "\\PC{0,60}", issued in 0u64..1 << 40,
    ) {
        let network = NetworkId::new(network);
        let of = Claims { hash, id, network, method, issued, expires: issued + 60, ..claims() };
        let token = sign_claims(&key(2), &of);
        let expected = Expected {
            method: &of.method,
            audience: &of.audience,
            network: &of.network,
            id: &of.id,
            now: issued,
        };
        match verify_claims(&token, &key(2).public(), &expected) {
            Ok(back) => prop_assert_eq!(back, of),
            // Long paths of many-byte characters do not fit a token.
            Err(error) => {
                prop_assert_eq!(error, JwtError::Malformed);
                prop_assert!(token.len() > TOKEN_BYTES_MAX);
            }
        }
    }

    #[test]
    fn a_changed_character_is_refused(at in 0usize..600, other in "[A-Za-z0-9._=!-]") {
        let token = sign_claims(&key(2), &claims());
        let at = at % token.len();
        let mut bad = token.clone();
        bad.replace_range(at..=at, &other);
        prop_assume!(bad != token);
        prop_assert!(verify(&bad, 1_000).is_err());
    }

    #[test]
    fn garbage_is_refused_without_a_panic(token in "\\PC{0,300}") {
        prop_assert!(verify(&token, 1_000).is_err());
        let _ = is_bare(&token);
    }
}
