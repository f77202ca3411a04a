use super::*;

const HERE: &str = "192.0.2.1:7000";

/// Every variant, with parts that would be lost if the table dropped one.
pub(crate) fn every_error() -> Vec<CallError> {
    let (address, reason) = ("192.0.2.9:1".to_owned(), "because".to_owned());
    let limit = Duration::from_millis(1234);
    vec![
        CallError::Unreachable { address: address.clone(), reason: reason.clone() },
        CallError::WrongPeer { address: address.clone(), reason: reason.clone() },
        CallError::TimedOut { address: address.clone(), limit },
        CallError::Invalid { reason: reason.clone() },
        CallError::Denied { reason: reason.clone() },
        CallError::Busy { retry_after: limit },
        CallError::Full,
        CallError::ReadOnly { reason: reason.clone() },
        CallError::NotFound,
        CallError::TooFewPeers { reached: 1, wanted: 2 },
        CallError::Corrupt { address, reason: reason.clone() },
        CallError::Internal { reason },
    ]
}

#[test]
fn every_error_arrives_as_itself() {
    let mut numbers = std::collections::BTreeSet::new();
    for error in every_error() {
        numbers.insert(to_failure(&error).code);
        let sent = to_status(&error);
        // As it arrives: headers written and read again.
        let written = sent.into_http::<()>();
        let arrived = Status::from_header_map(written.headers()).expect("there is a status");
        assert_eq!(from_status(&arrived, HERE, Duration::ZERO), (error, Origin::Far));
    }
    // Each number of the wire but 0 stands for one variant: a new one must join this test.
    let all: Vec<i32> = numbers.into_iter().collect();
    assert_eq!(all, (1..=12).collect::<Vec<i32>>());
    assert!(FailureCode::try_from(13).is_err());
}

#[test]
fn an_error_without_an_address_is_about_the_peer_that_answered() {
    let error = CallError::TimedOut { address: String::new(), limit: Duration::from_secs(1) };
    let (arrived, _) = from_status(&to_status(&error), HERE, Duration::ZERO);
    let limit = Duration::from_secs(1);
    assert_eq!(arrived, CallError::TimedOut { address: HERE.into(), limit });
}

#[test]
fn foreign_statuses_map_by_their_code() {
    let map = |code| from_status(&Status::new(code, "text"), HERE, Duration::from_secs(3)).0;
    let (address, reason) = (HERE.to_owned(), "text".to_owned());
    let limit = Duration::from_secs(3);
    let cases = [
        (Code::Unimplemented, CallError::Invalid { reason: reason.clone() }),
        (Code::InvalidArgument, CallError::Invalid { reason: reason.clone() }),
        (Code::Unauthenticated, CallError::Denied { reason: reason.clone() }),
        (Code::PermissionDenied, CallError::Denied { reason: reason.clone() }),
        (Code::ResourceExhausted, CallError::Busy { retry_after: RETRY_AFTER_DEFAULT }),
        (Code::NotFound, CallError::NotFound),
        (Code::DeadlineExceeded, CallError::TimedOut { address: address.clone(), limit }),
        (
            Code::Unavailable,
            CallError::Unreachable { address: address.clone(), reason: reason.clone() },
        ),
        (Code::OutOfRange, CallError::Corrupt { address, reason: reason.clone() }),
        (Code::Unknown, CallError::Internal { reason: reason.clone() }),
        (Code::Internal, CallError::Internal { reason }),
    ];
    for (code, expected) in cases {
        assert_eq!(map(code), expected, "{code:?}");
    }
}

#[test]
fn texts_of_the_far_side_cannot_drive_a_terminal_or_fill_memory() {
    let reason = format!("\x1b[2Jhidden\r\n{}", "é".repeat(1000));
    let mut failure = to_failure(&CallError::Invalid { reason: String::new() });
    failure.reason = reason;
    let Some(CallError::Invalid { reason }) = from_failure(&failure, HERE) else {
        panic!("it stays invalid")
    };
    assert!(reason.starts_with("[2Jhidden") && reason.len() <= REASON_BYTES_MAX, "{reason}");
    assert!(!reason.contains(char::is_control));
}

#[test]
fn a_failure_of_no_known_code_falls_back_to_the_status() {
    for code in [0, 13, -1] {
        let failure = Failure { code, ..Failure::default() }.encode_to_vec();
        let mut trailers = MetadataMap::new();
        trailers.insert_bin(FAILURE_TRAILER, MetadataValue::from_bytes(&failure));
        let status = Status::with_metadata(Code::NotFound, "", trailers);
        assert_eq!(from_status(&status, HERE, Duration::ZERO).0, CallError::NotFound);
    }
}
