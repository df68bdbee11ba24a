use tokio::io::AsyncReadExt as _;

use super::*;

/// Reads a packet of the client.
async fn read(server: &mut (impl AsyncRead + Unpin)) -> Vec<u8> {
    let mut frame = vec![0; usize::try_from(server.read_u32().await.unwrap()).unwrap()];
    server.read_exact(&mut frame).await.unwrap();
    frame
}

/// Writes a reply with an empty body.
async fn reply(server: &mut (impl AsyncWrite + Unpin), number: i32, code: i32) {
    let mut packet = super::super::jute::Encoder::default();
    server.write_all(&packet.int(number).long(0).int(code).frame()).await.unwrap();
}

/// Returns a session with a timeout of 900 ms that ends when it is not used for `idle`, and the server's side of its connection.
async fn opened(idle: Duration) -> (Session, tokio::io::DuplexStream) {
    let (client, mut server) = tokio::io::duplex(1 << 16);
    let open = Session::open(Box::new(client), None, idle);
    let accept = async {
        read(&mut server).await;
        let mut packet = super::super::jute::Encoder::default();
        let packet = packet.int(0).int(900).long(1).bytes(&[0; 16]).bool(false).frame();
        server.write_all(&packet).await.unwrap();
    };
    let (session, ()) = tokio::join!(open, accept);
    (session.unwrap().unwrap(), server)
}

fn request() -> Request {
    Request::Stat { path: "/a".to_owned() }
}

#[tokio::test]
async fn several_requests_are_under_way_at_the_same_time() {
    let (session, mut server) = opened(IDLE).await;
    let serve = async {
        read(&mut server).await;
        read(&mut server).await;
        reply(&mut server, EVENT, 0).await;
        reply(&mut server, PING, 0).await;
        reply(&mut server, 1, -101).await;
        reply(&mut server, 2, 0).await;
    };
    let (one, two, ()) =
        tokio::join!(session.call(request(), MAX_SMALL), session.call(request(), MAX_SMALL), serve);
    assert_eq!((one.unwrap().code, two.unwrap().code), (-101, 0));
    assert_eq!(*session.events().borrow(), 1);
    // The end of the session is told to the server.
    drop(session);
    assert_eq!(read(&mut server).await[4..], (-11_i32).to_be_bytes());
}

#[tokio::test]
async fn a_wrong_answer_ends_the_session_and_leaves_the_result_open() {
    let (session, mut server) = opened(IDLE).await;
    let serve = async {
        read(&mut server).await;
        reply(&mut server, 7, 0).await;
    };
    let (result, ()) = tokio::join!(session.call(request(), MAX_SMALL), serve);
    assert!(matches!(result, Err(Failure::Lost(_))), "{result:?}");
    let mut events = session.events();
    while events.changed().await.is_ok() {}
    assert!(matches!(session.call(request(), MAX_SMALL).await, Err(Failure::NotSent(_))));
}

#[tokio::test]
async fn a_silent_server_is_pinged_and_then_given_up() {
    let (session, mut server) = opened(IDLE).await;
    let started = Instant::now();
    let result = session.call(request(), MAX_SMALL).await;
    assert_eq!(result.unwrap_err(), Failure::Lost("the connection is lost: the server is silent".to_owned()));
    assert!(started.elapsed() >= Duration::from_millis(600), "{:?}", started.elapsed());
    read(&mut server).await;
    assert_eq!(read(&mut server).await[..4], PING.to_be_bytes());
}

#[tokio::test]
async fn a_session_without_calls_ends() {
    let (session, mut server) = opened(Duration::from_millis(1)).await;
    let started = Instant::now();
    // The first packet is not a ping but the end.
    assert_eq!(read(&mut server).await[4..], (-11_i32).to_be_bytes());
    let mut events = session.events();
    while events.changed().await.is_ok() {}
    assert!(session.has_ended() && started.elapsed() >= Duration::from_millis(1));
}
