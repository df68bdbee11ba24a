//! Somebody else who uses ZooKeeper: an application, a consumer, or a person. It shares no code with the client.

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// What `create` does with the end of the session.
#[derive(Clone, Copy, Debug)]
pub(super) enum Lifetime {
    Persistent,
    Ephemeral,
}

/// A connection with a session.
#[derive(Debug)]
pub(super) struct Other {
    stream: TcpStream,
    number: i32,
}

fn put_bytes(packet: &mut Vec<u8>, bytes: &[u8]) {
    // Tests write little.
    packet.extend(u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_be_bytes());
    packet.extend(bytes);
}

impl Other {
    pub(super) async fn connect(address: &str) -> Result<Self> {
        let mut this = Self { stream: TcpStream::connect(address).await?, number: 0 };
        let mut packet = vec![0; 12];
        packet.extend(30_000_u32.to_be_bytes());
        packet.extend([0; 8]);
        put_bytes(&mut packet, &[0; 16]);
        packet.push(0);
        this.send(&packet).await?;
        this.receive().await.context("no session")?;
        Ok(this)
    }

    async fn send(&mut self, packet: &[u8]) -> Result<()> {
        let mut frame = Vec::new();
        put_bytes(&mut frame, packet);
        Ok(self.stream.write_all(&frame).await?)
    }

    async fn receive(&mut self) -> Result<Vec<u8>> {
        let length = self.stream.read_u32().await?;
        let mut packet = vec![0; usize::try_from(length)?];
        self.stream.read_exact(&mut packet).await?;
        Ok(packet)
    }

    /// Returns the body of the answer, and fails with the code of an error.
    async fn call(&mut self, operation: i32, body: &[u8]) -> Result<Vec<u8>> {
        self.number += 1;
        let packet = [&self.number.to_be_bytes(), &operation.to_be_bytes(), body].concat();
        self.send(&packet).await?;
        let mut answer = self.receive().await?;
        let code = answer.get(12..16).context("the answer is too short")?;
        let code = i32::from_be_bytes(code.try_into()?);
        ensure!(code == 0, "error {code}");
        Ok(answer.split_off(16))
    }

    /// Creates a node, and the nodes above it.
    pub(super) async fn create(&mut self, path: &str, data: &str, lifetime: Lifetime) -> Result<()> {
        for (at, _) in path.match_indices('/').skip(1) {
            // It may be there already.
            self.create_one(&path[..at], "", Lifetime::Persistent).await.ok();
        }
        self.create_one(path, data, lifetime).await
    }

    pub(super) async fn create_one(&mut self, path: &str, data: &str, lifetime: Lifetime) -> Result<()> {
        let mut body = Vec::new();
        put_bytes(&mut body, path.as_bytes());
        put_bytes(&mut body, data.as_bytes());
        body.extend(1_u32.to_be_bytes());
        body.extend(31_u32.to_be_bytes());
        put_bytes(&mut body, b"world");
        put_bytes(&mut body, b"anyone");
        body.extend(match lifetime {
            Lifetime::Persistent => [0; 4],
            Lifetime::Ephemeral => 1_u32.to_be_bytes(),
        });
        self.call(1, &body).await.map(drop)
    }

    pub(super) async fn set(&mut self, path: &str, data: &str) -> Result<()> {
        let mut body = Vec::new();
        put_bytes(&mut body, path.as_bytes());
        put_bytes(&mut body, data.as_bytes());
        body.extend((-1_i32).to_be_bytes());
        self.call(5, &body).await.map(drop)
    }

    pub(super) async fn delete(&mut self, path: &str) -> Result<()> {
        let mut body = Vec::new();
        put_bytes(&mut body, path.as_bytes());
        body.extend((-1_i32).to_be_bytes());
        self.call(2, &body).await.map(drop)
    }

    /// Returns the data of a node.
    pub(super) async fn get(&mut self, path: &str) -> Result<String> {
        let mut body = Vec::new();
        put_bytes(&mut body, path.as_bytes());
        body.push(0);
        let answer = self.call(4, &body).await?;
        let (length, rest) = answer.split_first_chunk().context("the answer is too short")?;
        let data = rest.get(..usize::try_from(u32::from_be_bytes(*length))?);
        Ok(String::from_utf8(data.context("the answer is too short")?.to_vec())?)
    }

    pub(super) async fn json(&mut self, path: &str) -> Result<Value> {
        Ok(serde_json::from_str(&self.get(path).await?)?)
    }

    /// Returns the names of the nodes below one, sorted.
    pub(super) async fn children(&mut self, path: &str) -> Result<Vec<String>> {
        let mut body = Vec::new();
        put_bytes(&mut body, path.as_bytes());
        body.push(0);
        let answer = self.call(8, &body).await?;
        let mut rest = answer.get(4..).context("the answer is too short")?;
        let mut names = Vec::new();
        while let Some((length, name)) = rest.split_first_chunk() {
            let (name, next) = name.split_at(usize::try_from(u32::from_be_bytes(*length))?);
            names.push(String::from_utf8(name.to_vec())?);
            rest = next;
        }
        names.sort_unstable();
        Ok(names)
    }
}
