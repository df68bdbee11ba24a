//! Checks that `docker/Dockerfile` agrees with `cargo xtask images`.

use podward_images::{ServiceImages, workspace_dir};

fn file(name: &str) -> String {
    std::fs::read_to_string(workspace_dir().join(name)).expect(name)
}

#[test]
fn it_builds_every_service_with_this_compiler_as_static_programs() {
    let (dockerfile, toolchain) = (file("docker/Dockerfile"), file("rust-toolchain.toml"));
    let has = |line: &str| assert!(dockerfile.contains(line), "docker/Dockerfile lacks {line:?}");
    let channel = toolchain.lines().find_map(|line| line.strip_prefix("channel = ")).expect("a channel");
    has(&format!("\nARG RUST={}\n", channel.trim_matches('"')));
    has(&format!("org.opencontainers.image.version=\"{}\"", env!("CARGO_PKG_VERSION")));
    has("-C target-feature=+crt-static");
    has("\nUSER 65532:65532\n");
    // The build's folders, which are part of paths in the programs.
    has("\nWORKDIR /src\n");
    has("\nENV CARGO_HOME=/usr/local/cargo\n");
    for program in ServiceImages::PROGRAMS {
        has(&format!("--package {program}"));
        has(&format!("\nFROM base AS {program}\nLABEL org.opencontainers.image.title=\"{program}\"\n"));
        has(&format!("COPY --from=build /out/{program} /{program}\nENTRYPOINT [\"/{program}\"]\n"));
        assert!(file("docker/README.md").contains(program), "docker/README.md lacks {program}");
    }
}
