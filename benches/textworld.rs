//! What a plan costs: a fresh reset and four commands, with the list of admissible commands at each step.

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use veriharness::gate::textworld::{Game, judge, library};

const PLAN: [&str; 4] = [
    "go east",
    "take type 4 latchkey from type 4 chest",
    "drop cookie",
    "go west",
];

fn games(c: &mut Criterion) {
    let game = library::open("20261052").expect("a game of the library");
    c.bench_function("textworld/reset + 4 commands + 5 lists", |b| {
        b.iter(|| {
            let mut play = game.start();
            let mut listed = play.admissible().map(str::len).sum::<usize>();
            for command in PLAN {
                play.step(black_box(command)).expect("an admissible command");
                listed += play.admissible().map(str::len).sum::<usize>();
            }
            listed
        });
    });
    let plan: Vec<String> = ["go east", "take spork from type 4 chest"]
        .map(str::to_owned)
        .into();
    c.bench_function("textworld/judge a winning plan", |b| {
        b.iter(|| judge(&game, black_box(&plan), 4))
    });
    let plan: Vec<String> = ["go east", "open chest"].map(str::to_owned).into();
    c.bench_function(
        "textworld/judge a failing plan, next winning command included",
        |b| {
            b.iter(|| judge(&game, black_box(&plan), 4));
        },
    );
    c.bench_function("textworld/texts of one step", |b| {
        let mut play = game.start();
        play.step("go east").expect("an admissible command");
        b.iter(|| (play.feedback(), play.description(), play.inventory()));
    });
    c.bench_function("textworld/parse a game", |b| {
        let bytes = include_bytes!("../games/textworld/20261052.json");
        b.iter(|| Game::parse(black_box(bytes), "20261052"));
    });
}

criterion_group!(benches, games);
criterion_main!(benches);
