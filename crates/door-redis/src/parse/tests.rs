use proptest::prelude::*;

use super::*;

const BOUNDS: Bounds =
    Bounds { arguments: 1000, argument_bytes: 1 << 20, command_bytes: 2 << 20, stranger: false };

type Requests = Vec<Vec<Vec<u8>>>;

/// Feeds `stream` in parts that end at `cuts`, as a connection does.
fn feed(stream: &[u8], cuts: &[usize], bounds: &Bounds) -> Result<Requests, ProtocolError> {
    let mut parser = Parser::default();
    let (mut input, mut requests, mut from) = (Vec::new(), Vec::new(), 0);
    let mut ends: Vec<usize> = cuts.iter().map(|cut| cut % (stream.len() + 1)).collect();
    ends.push(stream.len());
    ends.sort_unstable();
    for end in ends {
        let mut part = &stream[from..end];
        from = end;
        while let Some(large) = parser.large() {
            let take = part.len().min(large.capacity() - large.len());
            large.extend_from_slice(&part[..take]);
            part = &part[take..];
            if take == 0 {
                break;
            }
        }
        input.extend_from_slice(&parser.beyond());
        input.extend_from_slice(part);
        let mut at = 0;
        loop {
            match parser.parse(&input[at..], bounds)? {
                Parsed::Request { end } => {
                    let arguments = parser.arguments(&input[at..]);
                    requests.push(arguments.from(0).map(<[u8]>::to_vec).collect());
                    parser.next();
                    at += end;
                }
                Parsed::More => break,
                Parsed::Large { keep } => {
                    input.truncate(at + keep);
                    break;
                }
            }
        }
        input.drain(..at);
    }
    Ok(requests)
}

fn encode(requests: &Requests) -> Vec<u8> {
    let mut bytes = Vec::new();
    for request in requests {
        bytes.extend_from_slice(format!("*{}\r\n", request.len()).as_bytes());
        for argument in request {
            bytes.extend_from_slice(format!("${}\r\n", argument.len()).as_bytes());
            bytes.extend_from_slice(argument);
            bytes.extend_from_slice(b"\r\n");
        }
    }
    bytes
}

fn argument() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        20 => prop::collection::vec(any::<u8>(), 0..40),
        1 => (LARGE_BYTES - 3..4 * LARGE_BYTES, any::<u8>()).prop_map(|(n, fill)| vec![fill; n]),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_split_gives_the_same_requests(
        requests in prop::collection::vec(prop::collection::vec(argument(), 1..6), 0..6),
        cuts in prop::collection::vec(any::<usize>(), 0..12),
    ) {
        prop_assert_eq!(feed(&encode(&requests), &cuts, &BOUNDS), Ok(requests));
    }

    #[test]
    fn hostile_bytes_give_the_same_end_whatever_the_split(
        stream in prop::collection::vec(
            prop::sample::select(&b"*$0123-\r\n\"'\\x ab\0\xff"[..]), 0..200),
        cuts in prop::collection::vec(any::<usize>(), 0..12),
    ) {
        prop_assert_eq!(feed(&stream, &cuts, &BOUNDS), feed(&stream, &[], &BOUNDS));
    }
}

#[test]
fn every_single_byte_split_gives_the_same_requests() {
    let requests =
        vec![vec![b"SET".to_vec(), b"k".to_vec(), b"\r\n$1".to_vec()], vec![b"PING".to_vec()]];
    let stream = encode(&requests);
    let all: Vec<usize> = (0..stream.len()).collect();
    assert_eq!(feed(&stream, &all, &BOUNDS), Ok(requests));
}

#[test]
fn lines_typed_by_hand_are_requests() {
    let stream = b"  set  k \"a\\x41\\n\\\"b\" 'it\\'s'\r\n\r\nPING\n";
    let expected: Requests = vec![
        vec![b"set".to_vec(), b"k".to_vec(), b"aA\n\"b".to_vec(), b"it's".to_vec()],
        vec![],
        vec![b"PING".to_vec()],
    ];
    assert_eq!(feed(stream, &[], &BOUNDS), Ok(expected));
    for bad in [&b"get \"k\n"[..], b"get 'k\n", b"get \"k\"k\n"] {
        assert_eq!(feed(bad, &[], &BOUNDS), Err(ProtocolError::Quotes));
    }
}

#[test]
fn errors_are_those_of_redis() {
    let long = vec![b'1'; LINE_BYTES_MAX + 1];
    let with = |head: &[u8]| [head, &long].concat();
    let cases: Vec<(Vec<u8>, &str)> = vec![
        (with(b"x"), "too big inline request"),
        (with(b"*"), "too big mbulk count string"),
        (with(b"*1\r\n$"), "too big bulk count string"),
        (b"*x\r\n".to_vec(), "invalid multibulk length"),
        (b"*1001\r\n".to_vec(), "invalid multibulk length"),
        (b"*01\r\n".to_vec(), "invalid multibulk length"),
        (b"*1\r\nx".to_vec(), "expected '$', got 'x'"),
        (b"*1\r\n$-1\r\n".to_vec(), "invalid bulk length"),
        (b"*1\r\n$1048577\r\n".to_vec(), "invalid bulk length"),
        (b"*1\r\n$x\r\n".to_vec(), "invalid bulk length"),
    ];
    for (stream, text) in cases {
        let error = feed(&stream, &[], &BOUNDS).expect_err(text);
        assert_eq!(error.text(), format!("Protocol error: {text}"));
    }
    assert_eq!(feed(b"*0\r\n*-1\r\n", &[], &BOUNDS), Ok(vec![vec![], vec![]]));
}

#[test]
fn strangers_have_narrow_bounds() {
    let bounds = Bounds { stranger: true, ..BOUNDS };
    assert_eq!(feed(b"*11\r\n", &[], &bounds), Err(ProtocolError::StrangerCount));
    assert_eq!(feed(b"*1\r\n$16385\r\n", &[], &bounds), Err(ProtocolError::StrangerLength));
    assert_eq!(feed(b"*2\r\n$4\r\nAUTH\r\n$1\r\np\r\n", &[], &bounds).map(|all| all.len()), Ok(1));
}

#[test]
fn arguments_together_are_bounded() {
    let one = format!("${}\r\n{}\r\n", 1 << 20, "x".repeat(1 << 20));
    let stream = format!("*3\r\n{one}{one}$1\r\nx\r\n");
    assert_eq!(feed(stream.as_bytes(), &[], &BOUNDS), Err(ProtocolError::Large));
}

#[test]
fn a_claim_alone_takes_no_memory() {
    let mut parser = Parser::default();
    let parsed = parser.parse(b"*1\r\n$1048576\r\n", &BOUNDS);
    assert_eq!(parsed, Ok(Parsed::Large { keep: 14 }));
    assert!(parser.held() <= 2 * LARGE_STEP, "{}", parser.held());
}

#[test]
fn a_large_argument_is_kept_without_another_copy() {
    let mut parser = Parser::default();
    let length = 4 * LARGE_STEP;
    let head = format!("*1\r\n${length}\r\n");
    parser.parse(head.as_bytes(), &BOUNDS).expect("well formed");
    while let Some(large) = parser.large() {
        let room = large.capacity() - large.len();
        large.extend(std::iter::repeat_n(b'x', room));
    }
    assert!(parser.beyond().is_empty());
    let parsed = parser.parse(head.as_bytes(), &BOUNDS);
    assert_eq!(parsed, Ok(Parsed::Request { end: head.len() }));
    let arguments = parser.arguments(head.as_bytes());
    assert_eq!(arguments.bytes(0).as_ptr(), arguments.get(0).as_ptr());
    assert_eq!(arguments.bytes(0).len(), length);
}

/// What a large request took is given back with it, and counted until then.
#[test]
fn nothing_large_is_held_behind_a_request() {
    let bounds = Bounds { arguments: 100_000, ..BOUNDS };
    let words = vec![b"word".to_vec(); 50_000];
    let typed = [&b"x ".repeat(30_000)[..], b"\n"].concat();
    for (stream, least) in [(encode(&vec![words]), 50_000 * size_of::<Span>()), (typed, 1_000_000)]
    {
        let mut parser = Parser::default();
        let parsed = parser.parse(&stream, &bounds);
        assert_eq!(parsed, Ok(Parsed::Request { end: stream.len() }));
        assert!(parser.held() >= least, "{}", parser.held());
        parser.next();
        assert!(parser.held() < 100_000, "{}", parser.held());
    }
}
