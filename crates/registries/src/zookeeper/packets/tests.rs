use super::*;

const STAT: Stat = Stat { created: 7, modified: 9, version: 2, is_ephemeral: true };

fn encode_stat(packet: &mut Encoder) {
    packet.long(7).long(9).long(1).long(2).int(2).int(3).int(4).long(5).int(6).int(7).long(8);
}

/// Returns the packet without its length.
fn body(packet: &Encoder) -> Vec<u8> {
    packet.frame().split_off(4)
}

#[test]
fn requests_are_as_the_server_expects_them() {
    let frame = Request::Children { path: "/a".to_owned() }.frame(3);
    assert_eq!(frame, [0, 0, 0, 15, 0, 0, 0, 3, 0, 0, 0, 8, 0, 0, 0, 2, b'/', b'a', 0]);
    let frame = Request::Delete { path: "/a".to_owned(), version: 5 }.frame(1);
    assert_eq!(frame, [0, 0, 0, 18, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 2, b'/', b'a', 0, 0, 0, 5]);
    assert_eq!(connect(4000).len(), 4 + 45);
    assert_eq!(ping(), [0, 0, 0, 8, 0xff, 0xff, 0xff, 0xfe, 0, 0, 0, 11]);
    assert_eq!(close(4), [0, 0, 0, 8, 0, 0, 0, 4, 0xff, 0xff, 0xff, 0xf5]);
}

#[test]
fn replies_are_read() {
    let mut packet = Encoder::default();
    packet.int(3).long(8).int(-101).int(9);
    let packet = body(&packet);
    assert_eq!(reply(&packet), Ok(Reply { number: 3, code: -101, body: &[0, 0, 0, 9] }));

    let mut packet = Encoder::default();
    packet.bytes(b"x");
    encode_stat(&mut packet);
    assert_eq!(data(&body(&packet)), Ok((b"x".to_vec(), STAT)));
    let mut packet = Encoder::default();
    packet.int(0).int(4000).long(5).bytes(&[0; 16]).bool(false);
    assert_eq!(connected(&body(&packet)), Ok(Connected { timeout: 4000 }));
}

#[test]
fn the_error_of_a_transaction_is_the_one_of_the_change_that_failed() {
    let mut made = Encoder::default();
    made.int(operation::CREATE).bool(false).int(0).text("/a").int(operation::DELETE).bool(false).int(0);
    made.int(operation::SET_DATA).bool(false).int(0);
    encode_stat(&mut made);
    made.int(END).bool(true).int(-1);
    assert_eq!(multi(&body(&made)), Ok(0));

    let mut failed = Encoder::default();
    for code in [0, -110, -2] {
        failed.int(operation::ERROR).bool(false).int(code).int(code);
    }
    failed.int(END).bool(true).int(-1);
    assert_eq!(multi(&body(&failed)), Ok(-110));
}

#[test]
fn no_bytes_make_a_decoder_fail_otherwise() {
    let mut valid = Encoder::default();
    valid.int(operation::CREATE).bool(false).int(0).text("/a").int(operation::SET_DATA).bool(false).int(0);
    encode_stat(&mut valid);
    valid.int(END).bool(true).int(-1);
    let valid = body(&valid);
    let mut random = fastrand::Rng::with_seed(7);
    for round in 0..20_000 {
        let mut bytes = valid.clone();
        bytes.truncate(random.usize(..=valid.len()));
        for _ in 0..round % 8 {
            let value = random.u8(..);
            if let Some(byte) = random.choice(bytes.iter_mut()) {
                *byte = value;
            }
        }
        // Results of any kind: only a panic is wrong.
        drop((
            reply(&bytes),
            children(&bytes, 100),
            data(&bytes),
            stat(&bytes),
            multi(&bytes),
            connected(&bytes),
        ));
    }
    for length in 0..valid.len() {
        assert!(multi(&valid[..length]).is_err(), "{length}");
    }
}
