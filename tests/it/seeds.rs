//! The map of the seed tests names tests that are there.

use std::path::Path;

#[test]
fn every_test_that_the_map_names_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let map = std::fs::read_to_string(root.join("docs/seeds.md")).unwrap();
    let mut named = 0;
    for place in map.split("`it/").skip(1) {
        let Some((file, rest)) = place.split_once("`: `") else { continue };
        let Some((test, _)) = rest.split_once('`') else { continue };
        if file.contains('`') {
            continue;
        }
        let text = std::fs::read_to_string(root.join("tests/it").join(file)).unwrap();
        assert!(text.contains(&format!("fn {test}(")), "{file} has no test {test}");
        named += 1;
    }
    assert!(named > 15, "only {named} tests are named");
}
