use super::*;

fn count(text: &str, part: &str) -> usize {
    text.matches(part).count()
}

#[test]
fn a_page_is_one_document_with_every_chart_and_name() {
    let lines = Chart::lines("Rates & more", "seconds", "MB/s")
        .with("put", vec![(0.0, 1.0), (1.0, 4.0)])
        .beside("paper <2018>", vec![(0.0, 2.0)]);
    let names = vec!["read".to_owned(), "hash".to_owned()];
    let bars = Chart::bars("Stages", "ns", names).with("limit", vec![(0.0, 1.0), (1.0, 2.0)]);
    let page = Chart::page(&[lines, bars]);
    assert_eq!((count(&page, "<svg "), count(&page, "</svg>")), (1, 1));
    assert_eq!(count(&page, "<g "), count(&page, "</g>"));
    for name in ["Rates &amp; more", "paper &lt;2018&gt;", "Stages", "read", "hash", "MB/s"] {
        assert!(page.contains(name), "{name}");
    }
    assert_eq!(count(&page, "<circle"), 3);
    assert_eq!(count(&page, "fill-opacity"), 2);
    assert_eq!(count(&page, "stroke-dasharray"), 2, "the line of others and its legend");
    assert!(!page.contains("NaN") && !page.contains("inf"), "{page}");
}

#[test]
fn what_cannot_be_shown_is_left_out() {
    let chart = Chart::lines("t", "x", "y")
        .log(true, true)
        .with("s", vec![(0.0, 1.0), (1.0, f64::NAN), (2.0, -1.0), (4.0, 4.0)]);
    let page = Chart::page(&[chart]);
    assert_eq!(count(&page, "<circle"), 1);
    assert!(!page.contains("NaN") && !page.contains("inf"));
    let empty = Chart::page(&[Chart::lines("nothing", "x", "y")]);
    assert!(empty.contains("nothing") && !empty.contains("NaN"));
}

#[test]
fn every_point_lies_on_the_paper() {
    let points: Vec<(f64, f64)> =
        (0..20).map(|n| (f64::from(n), f64::from(n * n) - 50.0)).collect();
    let page = Chart::page(&[Chart::lines("t", "x", "y").with("s", points)]);
    for circle in page.lines().filter(|line| line.starts_with("<circle")) {
        let number = |name: &str| -> f64 {
            let rest = circle.split(name).nth(1).expect("the field");
            rest.split('"').nth(1).and_then(|text| text.parse().ok()).expect("a number")
        };
        let (x, y) = (number("cx="), number("cy="));
        assert!((LEFT..=WIDTH - RIGHT).contains(&x) && (TOP..=HEIGHT - BOTTOM).contains(&y));
    }
}
